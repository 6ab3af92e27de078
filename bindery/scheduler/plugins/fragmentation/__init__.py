"""fragmentation: places pods where the typical workload loses the fewest GPUs."""
