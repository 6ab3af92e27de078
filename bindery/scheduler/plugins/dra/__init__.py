"""dra: dynamic resource allocation, the choice of devices for claims (KEP-4381 and related KEPs).

`cel` and `celfunctions` evaluate selectors. `inventory` has the devices, `usage` their use.
`claims` reads claims, `allocator` searches devices, and `result` writes the found ones. These
modules are pure.
"""
