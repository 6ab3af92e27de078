"""The Prometheus metrics of an agent that keeps nodes, hollow or real.

Written by `nodes`, `pods`, `kubelets` and `containers`; served by `bindery.observability.health`.
"""

from prometheus_client import Counter, Gauge

NODES = Gauge(
    "bindery_nodeagent_nodes", "Nodes of the agent by stage of their registration.", ["stage"]
)
POD_STEPS = Counter(
    "bindery_nodeagent_pod_steps_total", "Steps of pods that were carried out.", ["step"]
)
REFUSALS = Counter(
    "bindery_nodeagent_pod_refusals_total", "Pods that a node has refused.", ["reason"]
)
WORK_WAITING = Gauge(
    "bindery_nodeagent_work_waiting", "Keys that wait for a worker, by queue.", ["queue"]
)
