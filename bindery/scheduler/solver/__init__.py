"""Making room: the choice of running pods to evict so that a waiting gang can be placed.

reclaim, preempt and consolidation share this search; each has its own rule. victims.py lists the
possible victims, bounds.py proves without a search that no plan exists, search.py finds a plan.
"""
