"""Where past usage is known from: the scheduler's own record, or a Prometheus."""
