"""The cluster cache: watch events become columns, jobs and tasks, one event at a time.

cluster.py is the door; it knows which kind goes where. tasks.py keeps pods and jobs, holds.py knows
which pods stand in a BindRequest, failures.py remembers which nodes refused whom.
"""
