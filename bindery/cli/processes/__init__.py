"""The commands that start the processes, and `workloads`, which shows the rows of the grouper."""
