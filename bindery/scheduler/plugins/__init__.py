"""Scheduler plugins: every rule of planning that can be switched, ordered or replaced.

interface.py and further.py declare the extension points, registry.py finds and orders plugins by
configuration. timing.py measures them; arguments.py and selectors.py are used by several of them.
Each other module is one built-in plugin.
"""
