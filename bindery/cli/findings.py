"""Why a job waits, worked out from a look at the cluster with the scheduler's own engine.

Pure: `explain` looks and prints. The engine plans one cycle on the look, which changes nothing in
the cluster, so it says what the scheduler would do now and why not.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import NODE_POOL_LABEL
from bindery.cli.live import Look
from bindery.kube.objects import KubeObject
from bindery.kube.store import Change, EventType
from bindery.scheduler.engine import Engine
from bindery.scheduler.explain import node_reasons
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.placement import FilterCache
from bindery.scheduler.plugins import registry
from bindery.scheduler.reports import JobReport
from bindery.scheduler.session import Session

ADVICE: Final = {
    "QueueDoesNotExist": "Create the queue, or name another in spec.queue (bindery get queues).",
    "QueueClosed": "Open the queue (spec.state: Open), or name another in spec.queue.",
    "QueueInvalid": "Mend the Queue object that the message names.",
    "OverLimit": "Wait until others in the queue finish, raise the limit, or use another queue.",
    "NotEnoughPods": "Create the missing pods, or lower spec.minMember.",
    "SchedulingGated": "Remove the scheduling gates of the pods.",
    "PodGroupDoesNotExist": "Create the PodGroup that the pods' annotation names.",
    "PriorityClassDoesNotExist": "Create the PriorityClass, or name another in the PodGroup.",
    "Invalid": "Mend the PodGroup's spec.",
    "NotSupported": "Remove from the pod what is not supported yet.",
    "CommitUnderWay": "Wait: its BindRequest is being carried out (bindery get requests).",
    "WaitsForRelease": "Wait: it is placed when the pods that are being deleted are gone.",
    "Unschedulable": "Free or add nodes, or let the pods ask for less or for other nodes; "
    "a lower spec.minMember lets a part start.",
}
"""By the scheduler's reason: what a person can do."""


@dataclass(frozen=True)
class ShapeFinding:
    """Which nodes would take one of some equal pods, and why the others would not."""

    pod_count: int
    node_count: int
    against: dict[str, int]
    """By reason: nodes, each counted once."""

    @property
    def open_nodes(self) -> int:
        """How many nodes would take one such pod on its own."""
        return self.node_count - sum(self.against.values())


@dataclass(frozen=True)
class Finding:
    """What the engine would do with a job now."""

    report: JobReport | None
    """None: no pod of it waits."""
    shapes: tuple[ShapeFinding, ...] = ()
    would_bind: int = 0
    """How many of its pods the next cycle would commit."""


def find(look: Look, key: JobKey, node_pool: str, now: float) -> Finding:
    """Return why the job `key` waits at `now` (seconds since the epoch), if it does."""
    configuration = SchedulerConfiguration(node_pool=node_pool)
    engine = Engine(configuration, lambda: now)
    for item in look.everything():
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    shapes = tuple(_shapes(engine, configuration, key, now))
    would_bind = sum(task.job == key for draft in list(engine.cycle()) for task in draft.tasks)
    return Finding(engine.report.jobs.get(key), shapes, would_bind)


def _shapes(
    engine: Engine, configuration: SchedulerConfiguration, key: JobKey, now: float
) -> Iterator[ShapeFinding]:
    job = engine.cluster.state.jobs.get(key)
    if job is None:
        return
    plugins = registry.load(configuration.plugins)
    session = Session(engine.cluster, plugins, FilterCache(), now)
    counts: Counter[Shape] = Counter(task.shape for task in session.pods_in_order(job))
    for shape, count in counts.items():
        finder = session.placement.finder(job)
        against = node_reasons(session, session.placement, finder, shape)
        yield ShapeFinding(count, len(session.order), dict(against.most_common()))
    session.close()


def pool_of(item: KubeObject) -> str:
    """Return the node pool that `item` belongs to."""
    return item.metadata.labels.get(NODE_POOL_LABEL, "")
