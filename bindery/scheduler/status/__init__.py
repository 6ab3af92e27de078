"""The status of gangs, pods and queues: some modules compute it, others write it."""
