"""A DRA driver for shares of GPUs: ResourceSlices, and containers' variables by CDI.

`driver` starts everything. `offers` has the GPUs, `slices` and `publishing` the ResourceSlices, and
`health` the reports to the kubelet. `preparing` prepares the claims of the node's pods: `grants` is
what a claim gives, `consumers` its containers, `cdi` and `specfiles` the files. These are the only
state: one for each prepared claim.
"""
