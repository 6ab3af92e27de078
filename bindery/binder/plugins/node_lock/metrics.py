"""The Prometheus series of node locks. Labels are words of this plugin, never names of objects."""

from typing import Final

from prometheus_client import Counter, Histogram

HANDOVERS: Final = Counter(
    "bindery_node_lock_handovers", "How often a node's lock was given to a pod."
)
HEALED: Final = Counter(
    "bindery_node_lock_healed",
    "Locks that were taken from holders that need them no more.",
    ["why"],
)
STALLED: Final = Counter(
    "bindery_node_lock_stalled", "How often the queue for a node's lock was given up for a while."
)
WAIT_SECONDS: Final = Histogram(
    "bindery_node_lock_wait_seconds",
    "Time from a pod's joining the queue for its node to its turn.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)
