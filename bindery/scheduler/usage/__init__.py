"""Past usage of queues, from the scheduler's own record or from a Prometheus server."""
