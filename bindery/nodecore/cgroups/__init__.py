"""The container manager's cgroups: their names, and the values that are written to them."""
