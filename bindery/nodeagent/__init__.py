"""The node agent: runs bound pods.

This first form has hollow nodes only: Node objects, Leases and pod statuses without machines
behind them (`bindery nodeagent run --hollow N`). `agent` is the door; `docs/hollow-nodes.md` says
what is real and what is made up.
"""
