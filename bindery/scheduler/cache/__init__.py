"""The cluster cache: applies watch events to columns, jobs and tasks, one event at a time.

cluster.py receives every event; intake.py catches its errors, and cluster.py applies it by kind.
tasks.py has pods and jobs, task_queues.py the queue in which each counts, holds.py the pods in
BindRequests, failures.py the nodes on which bindings failed.
"""
