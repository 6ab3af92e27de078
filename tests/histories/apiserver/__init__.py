"""A model of the Kubernetes API server, in memory, for histories of simulated failure.

    server = ModelApiServer(now_s, random.Random(seed))
    client = Client(ModelCarrier(server, "scheduler-a"), request_timeout_s=30.0)

`server.store.log` has every write: who wrote what, when, and both versions.
"""
