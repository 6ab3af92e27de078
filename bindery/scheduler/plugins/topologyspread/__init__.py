"""Topology spread constraints: how evenly equal pods stand in the domains of a node label.

`counts` counts the pods of one constraint by domain, `rules` makes masks and scores of the counts
for one shape, `ledger` updates them with Statements.
"""
