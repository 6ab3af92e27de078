"""The status of gangs, pods and queues: modules that compute it, and modules that write it."""
