"""What the scheduler tells of gangs, pods and queues: some modules decide, others write."""
