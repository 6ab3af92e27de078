"""The CPU manager: which CPUs a container has for itself."""
