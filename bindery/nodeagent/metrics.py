"""The Prometheus metrics of a hollow node agent.

Written by `nodes` and `pods`; served by `bindery.observability.health`.
"""

from prometheus_client import Counter, Gauge

HOLLOW_NODES = Gauge(
    "bindery_hollow_nodes", "Hollow nodes by stage of their registration.", ["stage"]
)
POD_STEPS = Counter(
    "bindery_hollow_pod_steps_total", "Steps of pods that were carried out.", ["step"]
)
REFUSALS = Counter("bindery_hollow_pod_refusals_total", "Pods that a node has refused.", ["reason"])
WORK_WAITING = Gauge(
    "bindery_hollow_work_waiting", "Keys that wait for a worker, by queue.", ["queue"]
)
