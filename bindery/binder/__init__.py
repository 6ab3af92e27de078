"""The binder: carries out BindRequests against the API server.

`operator` (kopf) translates watch events into calls of the `statements.manager`, which runs one
`run.run` with one `run.transaction` a Statement. `outcome.status` puts outcomes into words,
`api_server.api_adapter` makes all calls to the API server, `process` puts it all together. The
binder never imports the scheduler: they meet in the BindRequest.
"""
