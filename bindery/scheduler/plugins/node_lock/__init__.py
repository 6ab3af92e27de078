"""Devices that HAMi shares, as the scheduler plans them.

`fleet` knows what nodes have and pods hold, `fit` says whether a pod fits on a node and with which
devices, `order` which are taken first, `mig` cuts cards, `ledger` keeps plans in step with
Statements. The plugin `node_lock` puts them together.
"""
