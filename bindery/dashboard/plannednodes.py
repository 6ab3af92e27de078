"""The nodes of a picture: what is used, what is kept and for which gang, and what is wrong.

Used by `planned`, with the scheduler's own columns, so that the map counts as planning does.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bindery.api import quantity
from bindery.api.names import (
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    NODE_POOL_LABEL,
    RACK_LABEL,
    ZONE_LABEL,
)
from bindery.dashboard.facts import NodeFact, NodeShare, PodOnNode
from bindery.kube.objects.topology import Topology
from bindery.kube.objects.watched import Node
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import JobKey, Task
from bindery.scheduler.planning.session import Session

SHOWN_RESOURCES: Final = {"gpu": GPU_RESOURCE, "cpu": "cpu", "memory": "memory"}
"""The resources of the map: as they are called in queues, and on the scheduler's axis."""


@dataclass
class Keeping:
    """The room of nodes that is kept for gangs, and the use of nodes before the plan."""

    now: float
    """Seconds since the epoch."""
    for_gangs: defaultdict[int, set[JobKey]] = field(default_factory=lambda: defaultdict(set))
    """Row of a node -> the gangs that room is kept for."""
    kept: IntColumns | None = None
    """[resource, node]."""
    used: IntColumns = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    releasing: IntColumns = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    tasks: defaultdict[int, list[tuple[Task, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Row of a node -> the pods that hold room there, with their states."""

    @classmethod
    def of(cls, session: Session) -> "Keeping":
        """Return the room that is kept for later stages and in exclusive domains."""
        found = cls(session.now)
        found._add(session)
        for job, rows in session.stage_rooms:
            for row in rows:
                found.for_gangs[row].add(job.key)
        return found

    def add_reservations(self, session: Session) -> None:
        """Add the room that the cycle in `session` has reserved."""
        self._add(session)
        for each in session.reservations.all:
            for row in each.rows:
                self.for_gangs[row].add(each.job.key)

    def remember_use(self, engine: Engine) -> None:
        """Note what pods hold now: a cycle enters its plans in the same columns."""
        nodes = engine.cluster.state.nodes
        self.used, self.releasing = nodes.used().copy(), nodes.releasing.copy()
        for task in engine.cluster.state.tasks.values():
            if task.status.holds_room and task.row >= 0:
                self.tasks[task.row].append((task, task.status.value))

    def _add(self, session: Session) -> None:
        kept = session.reservations.kept
        self.kept = kept.copy() if kept is not None else self.kept


def node_facts(
    engine: Engine, keeping: Keeping, topologies: Iterable[Topology]
) -> Iterator[NodeFact]:
    """Yield the nodes by name."""
    table = engine.cluster.state.nodes
    levels = _levels(topologies)
    for name, row in sorted(table.rows.items()):
        node = table.nodes[row]
        if node is not None:
            yield _node_fact(engine, name, row, node, keeping, levels)


def _levels(topologies: Iterable[Topology]) -> tuple[str, ...]:
    """Return the labels of topology levels, the widest first."""
    found = [level.node_label for each in topologies for level in each.spec.levels]
    return tuple(dict.fromkeys((*found, ZONE_LABEL, RACK_LABEL)))


def _node_fact(
    engine: Engine, name: str, row: int, node: Node, keeping: Keeping, levels: tuple[str, ...]
) -> NodeFact:
    labels = node.metadata.labels
    pods = tuple(_pods(engine, row, keeping))
    problem, is_sick = _problem(node, pods)
    return NodeFact(
        name=name,
        rack=labels.get(RACK_LABEL) or _rack(labels, levels),
        zone=labels.get(ZONE_LABEL, ""),
        pool=labels.get(NODE_POOL_LABEL, ""),
        model=labels.get(GPU_MODEL_LABEL, ""),
        problem=problem,
        is_sick=is_sick,
        is_cordoned=node.spec.unschedulable,
        resources=_resources(engine, row, keeping),
        pods=pods,
        labels={level: labels[level] for level in levels if level in labels},
        kept_for=tuple(sorted(keeping.for_gangs.get(row, ()))),
    )


def _rack(labels: dict[str, str], levels: tuple[str, ...]) -> str:
    """Return the narrowest domain that is no node."""
    narrow = [labels[each] for each in levels if each in labels and each != ZONE_LABEL]
    return narrow[-2] if len(narrow) > 1 else ""


def _resources(engine: Engine, row: int, keeping: Keeping) -> dict[str, NodeShare]:
    table, axis = engine.cluster.state.nodes, engine.cluster.state.axis
    found = {}
    for short, name in SHOWN_RESOURCES.items():
        index = axis.index(name)
        scale = quantity.scale(name)

        def of(columns: IntColumns | None, at: int = index, by: int = scale) -> float:
            is_known = columns is not None and at < columns.shape[0] and row < columns.shape[1]
            return float(columns[at, row]) / by if is_known and columns is not None else 0.0

        found[short] = NodeShare(
            of(table.allocatable), of(keeping.used), of(keeping.releasing), of(keeping.kept)
        )
    return found


def _pods(engine: Engine, row: int, keeping: Keeping) -> Iterator[PodOnNode]:
    axis = engine.cluster.state.axis
    index = axis.index(GPU_RESOURCE)
    scale = quantity.scale(GPU_RESOURCE)
    for task, state in sorted(keeping.tasks.get(row, ()), key=lambda each: each[0].name):
        request = engine.cluster.state.nodes.demand(row, task.shape.request)
        amounts = dict(zip(request.indices, request.amounts, strict=True))
        yield PodOnNode(
            name=task.name,
            gang=JobKey(task.namespace, task.job.name, task.job.is_group),
            count=1,
            gpus=amounts.get(index, 0) / scale,
            state=state,
            is_shared=task.shares_gpu,
            is_sick=bool(task.sick_devices),
            is_idle=task.idle_since <= keeping.now,
        )


def _problem(node: Node, pods: tuple[PodOnNode, ...]) -> tuple[str, bool]:
    """Return what is wrong with a node, and whether it or its devices are sick."""
    ready = next((c for c in node.status.conditions or () if c.type == "Ready"), None)
    if ready is not None and ready.status != "True":
        return f"NotReady: {ready.reason or 'the kubelet does not report'}", True
    sick = sum(pod.is_sick for pod in pods)
    if sick:
        return f"DevicesUnhealthy: devices of {sick} pods are reported as unhealthy", True
    if node.spec.unschedulable:
        return "Cordoned: it takes no new pods", False
    return "", False
