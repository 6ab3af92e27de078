"""The memory manager: which NUMA nodes a container's memory and huge pages come from."""
