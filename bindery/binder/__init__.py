"""The binder: carries out BindRequests against the API server.

`operator` (kopf) translates watch events into calls of the `manager`, which runs one `run` with one
`transaction` a Statement. `status` puts outcomes into words, `api_adapter` makes all calls to the
API server, `process` puts it all together. The binder never imports the scheduler: they meet in the
BindRequest.
"""
