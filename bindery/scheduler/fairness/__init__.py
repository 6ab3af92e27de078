"""The fair share of each queue in the cluster, as array arithmetic over queues."""
