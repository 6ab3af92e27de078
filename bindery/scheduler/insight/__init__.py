"""What people ask of the scheduler, answered by its own engine in memory.

Used by `bindery explain`, `bindery queues` and `bindery whatif`. Nothing here decides anything and
nothing is written: every plan that is tried is discarded again.
"""
