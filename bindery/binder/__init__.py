"""The binder: executes BindRequests against the API server.

`operator` (kopf) translates watch events into calls of the `statements.manager`, which starts one
`run.run` for each Statement, with one `run.transaction` for each attempt; `statements.entries` has
the states. `outcome.status` builds statuses from outcomes, `api_server.api_adapter` makes all calls
to the API server, `process` connects the parts. The binder never imports the scheduler:
BindRequests are their only interface.
"""
