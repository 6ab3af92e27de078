"""What the scheduler plans with: columns over nodes and queues, pods, jobs. No decisions."""
