"""Binder plugins: `interface` says what one may do, `registry` finds and builds the configured
ones, `chain` calls them in order.
"""
