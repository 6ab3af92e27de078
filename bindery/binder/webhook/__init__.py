"""The admission webhook: the binder's plugins validate and change pods when they are created.

`process` puts it together; `server` answers the API server, `review` decides, `rotation` keeps the
certificates of `certificates` in a Secret and tells the API server which to trust.
"""
