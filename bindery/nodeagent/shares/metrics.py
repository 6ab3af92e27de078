"""The Prometheus metrics of the device plugin for shares."""

from prometheus_client import Counter, Gauge

ALLOCATIONS = Counter(
    "bindery_shares_allocations_total",
    "Calls of the kubelet for shares of GPUs, by result.",
    ["result"],
)
SETTLED = Counter(
    "bindery_shares_settled_total",
    "Locks and phases that were left half done, and were ended.",
    ["what"],
)
GPUS = Gauge("bindery_shares_gpus", "GPUs whose shares this node offers, by health.", ["health"])
