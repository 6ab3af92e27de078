"""The cluster cache: applies watch events to columns, jobs and tasks, one event at a time.

cluster.py receives every event and passes it on by kind. tasks.py has pods and jobs, holds.py the
pods in BindRequests, failures.py the nodes on which bindings failed.
"""
