"""hami: HAMi's binding protocol, for nodes with HAMi's device plugins.

`plugin` has the steps, `queues` the queues for node locks, `lock` the compare-and-swap writes,
`holders` the rules for locks of other holders, `sweep` the release of abandoned locks, `mirror` the
watches, `api_server.pods` the writes onto pods.
"""
