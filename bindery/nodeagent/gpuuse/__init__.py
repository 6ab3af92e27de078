"""Whether pods use their GPUs, written into the annotation that the scheduler reads.

`holdings` finds the GPUs of each pod and `tracker` decides since when none of them is used; both
are pure. `reporter` reads and writes.
"""
