"""A DRA driver for shares of GPUs: ResourceSlices, and containers' variables by CDI.

`driver` starts everything. `offers` has the GPUs, `slices` and `publishing` the ResourceSlices,
`grants`, `cdi`, `specfiles` and `preparing` the claims of the node's pods, and `health` the reports
to the kubelet. The CDI files are the only state: one for each prepared claim.
"""
