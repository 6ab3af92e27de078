"""Prometheus metrics of past usage and of the amounts of queues.

The keepers count errors, and `process.py` registers the collector. `prometheus.py` can query the
exported amounts later. Invariant: only the leading process exports queues.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bindery.api import quantity
from bindery.scheduler.model.resources import PODS, short_name
from bindery.scheduler.usage.source import PastUsage

USAGE_ERRORS: Final = Counter(
    "bindery_usage_errors_total",
    "Failures to read, write or query past usage.",
    ["operation"],
)
USAGE_UPDATED: Final = Gauge(
    "bindery_usage_updated_timestamp_seconds",
    "Time at which past usage was last read from its source, or stored; 0 for never.",
)
USAGE_STALE: Final = Gauge(
    "bindery_usage_stale", "1 while past usage in use is older than the staleness limit."
)


class QueueCollector(Collector):
    """Amounts and past usage of queues in the last cycle; empty before the first cycle.

    A queue without an object is left out when it has no allocated amounts. Each scrape reads
    `past`, in the event loop's thread.
    """

    def __init__(self, past: PastUsage) -> None:
        self._past = past

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the allocated amounts and past usage of each queue, and the capacity."""
        held = GaugeMetricFamily(
            "bindery_queue_allocated",
            "Allocated amounts of a queue and all queues below it: devices, cores, bytes.",
            labels=["queue", "resource"],
        )
        capacity = GaugeMetricFamily(
            "bindery_capacity",
            "Capacity of the ready nodes for queues: devices, cores, bytes.",
            labels=["resource"],
        )
        usage = GaugeMetricFamily(
            "bindery_queue_usage",
            "Past usage of a queue as a part of capacity.",
            labels=["queue", "resource"],
        )
        moment, parts = self._past.latest or (None, None)
        for row, name in enumerate(moment.resources if moment is not None else ()):
            if moment is None or parts is None or name == PODS:
                continue
            short, scale = short_name(name), quantity.scale(name)
            capacity.add_metric([short], moment.capacity[row] / scale)
            for column, queue in enumerate(moment.queues):
                if queue in moment.gone and not moment.held[:, column].any():
                    continue
                held.add_metric([queue, short], moment.held[row, column] / scale)
                usage.add_metric([queue, short], parts[row, column])
        yield from (held, capacity, usage)
