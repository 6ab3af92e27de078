"""The admission webhook: checks objects of users, and lets the binder's plugins check and change
pods.

`process` connects the parts; `server` answers the API server, `review` decides, `rotation` keeps
the certificates of `certificates` in a Secret and writes the trusted authorities into the webhook
configurations.
"""
