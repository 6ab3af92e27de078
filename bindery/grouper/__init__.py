"""The grouper: writes a PodGroup for each workload, from its owner objects and its pods."""
