"""Binder plugins: `interface` defines the extension points, `registry` builds the configured
plugins, `chain` calls them in order.
"""
