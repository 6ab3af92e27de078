"""volumes: binds PersistentVolumeClaims of pods on their way to the node.

`plugin` has the steps, `writes` the writes to claims and volumes, `watch` their newest states.
"""
