"""The data that plans are made on: columns over nodes and queues, pods, jobs. No decisions."""
