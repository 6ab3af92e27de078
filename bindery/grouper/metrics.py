"""The Prometheus series of the grouper.

Written by `loop` and `writer`, served by `bindery.observability.health`. Labels have few values;
never names of objects.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

WRITES: Final = Counter(
    "bindery_grouper_writes",
    "PodGroups written by what was done: create, update, delete.",
    ["verb"],
)
REPORTS: Final = Counter(
    "bindery_grouper_reports", "Statuses of Kubernetes' own PodGroups that were written."
)
PLANS: Final = Counter(
    "bindery_grouper_plans", "Plans of a workload by how they ended: done, failed.", ["outcome"]
)
PLAN_SECONDS: Final = Histogram(
    "bindery_grouper_plan_seconds",
    "Time to work out the PodGroups of one workload, without reads and writes.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
)
LEADING: Final = Gauge("bindery_grouper_leading", "Whether this process writes PodGroups.")
WORKLOADS: Final = Gauge("bindery_grouper_workloads", "Workloads that have pods.")
WAITING: Final = Gauge(
    "bindery_grouper_waiting_workloads", "Workloads that are to be planned, or fail to be written."
)
GROUPS: Final = Gauge("bindery_grouper_podgroups", "PodGroups that the grouper has written.")
KINDS: Final = Gauge("bindery_grouper_watched_kinds", "Kinds of owners that are watched.")
