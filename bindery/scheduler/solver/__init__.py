"""Making room: which running pods go, so that a waiting gang can be placed.

reclaim, preempt and consolidation share this search; each brings its rule. victims.py knows who
could go, bounds.py proves without a search that nothing can help, search.py finds a plan.
"""
