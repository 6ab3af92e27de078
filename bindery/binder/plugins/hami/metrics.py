"""The Prometheus series of node locks. Labels are words of this plugin, never names of objects."""

from typing import Final

from prometheus_client import Counter, Histogram

HANDOVERS: Final = Counter("bindery_node_lock_handovers", "Node locks given to pods.")
HEALED: Final = Counter(
    "bindery_node_lock_healed",
    "Locks released or taken over from pods that no longer need them, by reason.",
    ["why"],
)
STALLED: Final = Counter(
    "bindery_node_lock_stalled", "Queues for a node's lock that were given up for a while."
)
WAIT_SECONDS: Final = Histogram(
    "bindery_node_lock_wait_seconds",
    "Time that a pod waits in the queue for its node's lock.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)
