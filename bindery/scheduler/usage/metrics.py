"""What a Prometheus is told: how the knowledge of past usage fares, and what queues hold.

The keepers count and `process.py` registers the collector. What queues hold is exported so that
`prometheus.py` may ask for it later. Invariant: only the process that leads exports queues.
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
    "Times that past usage could not be read, written or queried.",
    ["operation"],
)
USAGE_UPDATED: Final = Gauge(
    "bindery_usage_updated_timestamp_seconds",
    "When past usage was last read from its source, or stored; 0: never.",
)
USAGE_STALE: Final = Gauge(
    "bindery_usage_stale", "1 while past usage in use is older than the staleness limit."
)


class QueueCollector(Collector):
    """What queues hold and have used, as of the last cycle; nothing while this process waits.

    A queue without an object, deleted or only named by somebody, is left out once it holds nothing.

    `past` is asked at each scrape, in the event loop's thread.
    """

    def __init__(self, past: PastUsage) -> None:
        self._past = past

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield what each queue holds, what there is, and past usage."""
        held = GaugeMetricFamily(
            "bindery_queue_allocated",
            "What a queue holds with all below it: devices, cores, bytes.",
            labels=["queue", "resource"],
        )
        capacity = GaugeMetricFamily(
            "bindery_capacity",
            "What ready nodes offer to queues: devices, cores, bytes.",
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
