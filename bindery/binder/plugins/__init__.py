"""Binder plugins: `interface` has the extension points, `registry` finds and builds the configured
ones, `chain` calls them in order.
"""
