"""The node agent: runs bound pods.

Today all nodes are hollow: Node objects, Leases and pod statuses without machines behind them
(`bindery nodeagent run --hollow N`). `agent` is the entry point; `docs/hollow-nodes.md` lists what
is real and what is simulated.
"""
