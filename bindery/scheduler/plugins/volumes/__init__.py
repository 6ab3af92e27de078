"""Volumes in the scheduler: what is known of them (`catalog`), which fit where (`matching`), and
what a plan takes (`ledger`). The plugin `bindery.scheduler.plugins.volumes.plugin` joins them.
"""
