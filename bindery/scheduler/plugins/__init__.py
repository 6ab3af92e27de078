"""Scheduler plugins: every rule of planning that can be switched, ordered or replaced.

interface.py declares the extension points, registry.py finds and orders plugins by configuration;
each other module is one built-in plugin.
"""
