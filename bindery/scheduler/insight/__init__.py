"""Answers about the scheduler from its own engine in memory.

Used by `bindery explain`, `bindery queues` and `bindery whatif`. Nothing here decides anything and
nothing is written: every plan that is tried is discarded again.
"""
