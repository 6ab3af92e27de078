"""Scheduler plugins: every rule of planning that can be switched, ordered or replaced.

interface.py declares the extension points, registry.py finds and orders plugins by configuration,
timing.py measures them, arguments.py is for plugins that take none. Each other module or package is
one built-in plugin; the binder's half of a package has the same path below `bindery.binder`.
"""
