"""hami: HAMi's binding protocol, for nodes with its device plugins.

`plugin` has the steps, `queues` the queue for a node, `lock` the compare-and-swap, `holders` the
judgement of who has a lock, `sweep` the locks that are left behind, `mirror` the watches,
`api_server.pods` what is written onto pods.
"""
