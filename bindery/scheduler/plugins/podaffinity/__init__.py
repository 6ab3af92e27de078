"""Pod affinity and anti-affinity: where other pods stand decides which nodes are open.

`catalog` has the labels and terms of all pods, `populations` counts pods by domain during one
session, `ledger` updates the counts with Statements, `rules` turns them into masks and scores.
"""
