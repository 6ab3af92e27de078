"""The device manager: which devices of plugins a container gets."""
