"""Fair shares: what each queue deserves of the cluster, as array arithmetic over queues."""
