"""The topology manager: one choice of NUMA nodes for all resources of a container or pod."""
