"""volumes: binds PersistentVolumeClaims of pods during binding.

`plugin` has the steps, `writes` the writes to claims and volumes, `watch` their newest states.
"""
