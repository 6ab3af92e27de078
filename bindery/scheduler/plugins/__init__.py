"""Scheduler plugins: the rules of planning, switched and ordered by the configuration.

interface/ declares the extension points, view.py what plugins may read. registry.py builds and
measures the configured plugins. Every other module or package is one built-in plugin.
The binder's half of a package has the same path below `bindery.binder`.
"""
