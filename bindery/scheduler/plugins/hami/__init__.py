"""hami: devices shared by HAMi, in planning.

`fleet` has the devices of nodes and pods, `device_requests` the requests of pods. `fit` chooses
devices of a node, with `checks`, `order`, `groups` and `mig`. `ledger` has the plan of a session,
`quotas` the limits of namespaces. `plugin` connects these modules.
"""
