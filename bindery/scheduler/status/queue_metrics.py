"""Prometheus series of the rules, fair shares and waiting gangs of queues.

The loop calls `QueueFigures.note` after a cycle, and a scrape reads the last note. Allocated
amounts are exported by `usage/metrics.py`. Invariant: a deleted queue has no series.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.times import seconds
from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.model.jobs import NO_ROW, Job
from bindery.scheduler.model.queues import NO_LIMIT
from bindery.scheduler.model.resources import PODS, short_name
from bindery.scheduler.model.state import PlanState

NOTE_EVERY_S = 5.0
"""Minimum time between two notes, as each loops over all waiting gangs."""


@dataclass(frozen=True)
class Moment:
    """The figures of all queues; amounts are [resource, queue] in units of `quantity.scale`."""

    resources: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Names by row; "" for rows of queues that do not exist."""
    quota: Amounts = field(default_factory=lambda: np.zeros((0, 0)))
    limit: Amounts = field(default_factory=lambda: np.zeros((0, 0)))
    fair: Amounts = field(default_factory=lambda: np.zeros((0, 0)))
    waiting_pods: tuple[int, ...] = ()
    waiting_gangs: tuple[int, ...] = ()
    longest_wait_s: tuple[float, ...] = ()


class QueueFigures(Collector):
    """The series of quota, limit, fair share and waiting gangs, by queue."""

    def __init__(self) -> None:
        self._noted_at = -NOTE_EVERY_S
        self._moment = Moment()

    def note(self, state: PlanState, fair: Amounts, now: float) -> None:
        """Record the figures after a cycle, unless the last note is recent."""
        # A negative difference means that the clock was set back.
        if 0 <= now - self._noted_at < NOTE_EVERY_S:
            return
        self._noted_at = now
        table = state.queues
        count = len(table.entries)
        names = [""] * count
        for name, row in table.rows.items():
            names[row] = name if table.entries[row].exists else ""
        quota, _, limit = table.rules()
        deserved = np.zeros_like(quota)
        deserved[: fair.shape[0], : fair.shape[1]] = fair
        pods, gangs, waits = [0] * count, [0] * count, [0.0] * count
        for job in state.waiting.values():
            row = table.rows.get(job.queue, NO_ROW)
            if row == NO_ROW or not job.pending:
                continue
            pods[row] += len(job.pending)
            if not job.is_scheduled or job.needs_none:
                gangs[row] += 1
                created = seconds(_waits_since(job))
                waits[row] = max(waits[row], 0.0 if created is None else now - created)
        self._moment = Moment(
            tuple(table.axis.names),
            tuple(names),
            quota,
            limit,
            deserved,
            tuple(pods),
            tuple(gangs),
            tuple(waits),
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the series of the last note."""
        moment = self._moment
        for name, text, amounts in (
            ("quota", "Quota of a queue", moment.quota),
            ("limit", "Limit of a queue", moment.limit),
            ("fair_share", "Fair share of a queue in the last cycle", moment.fair),
        ):
            yield _amounts(f"bindery_queue_{name}", text, moment, amounts)
        for name, text, values in (
            (
                "waiting_pods",
                "Waiting pods of a queue, without the queues below it.",
                moment.waiting_pods,
            ),
            (
                "waiting_gangs",
                "Gangs that wait in a queue, without the queues below it.",
                moment.waiting_gangs,
            ),
            (
                "longest_wait_seconds",
                "Age of the oldest gang that waits, without the queues below it.",
                moment.longest_wait_s,
            ),
        ):
            family = GaugeMetricFamily(f"bindery_queue_{name}", text, labels=["queue"])
            for queue, value in zip(moment.queues, values, strict=True):
                if queue:
                    family.add_metric([queue], value)
            yield family


def _waits_since(job: Job) -> str:
    """Return the creation of `job`; if it needs no pods, that of its oldest waiting pod."""
    if not job.needs_none:
        return job.created
    return min(task.created for task in job.pending.values())


def _amounts(name: str, text: str, moment: Moment, amounts: Amounts) -> GaugeMetricFamily:
    """Return one series per queue and resource, without unlimited amounts."""
    text += ": devices, cores, bytes. Unlimited amounts are left out."
    family = GaugeMetricFamily(name, text, labels=["queue", "resource"])
    for row, resource in enumerate(moment.resources):
        if resource == PODS or resource.startswith(MODEL_PREFIX):
            continue
        short, scale = short_name(resource), quantity.scale(resource)
        for queue, amount in zip(moment.queues, amounts[row].tolist(), strict=True):
            if queue and amount != NO_LIMIT:
                family.add_metric([queue, short], amount / scale)
    return family
