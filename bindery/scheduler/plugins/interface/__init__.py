"""The extension points of the scheduler, each a Protocol. A plugin implements those it needs.

jobs.py has the decisions about queues, jobs and pods, nodes.py those about nodes and devices, and
state.py the state that a plugin observes, keeps in a ledger or gives to the binder.

Plugins return facts and wishes; the engine checks and applies them. A plugin must be pure: the same
session gives the same answer. Objects are observed between cycles only, so that one plan uses one
state of the cluster. An entry point of the group `bindery.scheduler_plugins` names the plugin;
`bindery.api.plugins` describes how it is built and gets its arguments.
"""
