"""The pods of other schedulers that are nominated for nodes: they will probably run there.

kube-scheduler nominates a pod for the node where it makes room for it, and pods whose binding takes
long. A pod counts them as if they were on their nodes, if their priority is not below its own.
The promises of this scheduler are no nominations; see `cache.promises`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.resources import Request


def is_nominated(pod: Pod) -> bool:
    """Return whether `pod` has no node yet, and is nominated for one."""
    is_waiting = not pod.spec.node_name and pod.status.phase not in ENDED_POD_PHASES
    return is_waiting and bool(pod.status.nominated_node_name)


@dataclass(frozen=True, slots=True)
class Nomination:
    """One nominated pod."""

    node_name: str
    priority: int
    request: Request


@dataclass(frozen=True, eq=False)
class Nominated:
    """The nominated pods that count for pods of some priority. Compared by identity."""

    amounts: IntColumns
    """What they request of each node [resource, node row]."""
    pods: Mapping[int, Sequence[Uid]]
    """Node row -> pods."""


class Nominations:
    """All nominated pods of other schedulers."""

    def __init__(self) -> None:
        self._by_uid: dict[Uid, Nomination] = {}

    def __bool__(self) -> bool:
        return bool(self._by_uid)

    def put(self, pod: Pod, request: Request) -> bool:
        """Add or update a nominated pod; return whether anything has changed."""
        uid = Uid(pod.metadata.uid)
        nomination = Nomination(pod.status.nominated_node_name, pod.spec.priority or 0, request)
        if self._by_uid.get(uid) == nomination:
            return False
        self._by_uid[uid] = nomination
        return True

    def remove(self, uid: Uid) -> bool:
        """Remove a pod; return whether it was there."""
        return self._by_uid.pop(uid, None) is not None

    def priorities(self) -> list[int]:
        """Return the priorities of the pods, highest first, each once."""
        return sorted({each.priority for each in self._by_uid.values()}, reverse=True)

    def from_priority(self, least: int, nodes: NodeTable) -> Nominated | None:
        """Return the pods with priority `least` or higher on known nodes; None without any."""
        pods: dict[int, list[Uid]] = {}
        amounts = np.zeros_like(nodes.allocatable)
        for uid, row, each in self._on(nodes):
            if each.priority >= least:
                pods.setdefault(row, []).append(uid)
                request = nodes.demand(row, each.request)
                amounts[list(request.indices), row] += request.amounts
        return Nominated(amounts, pods) if pods else None

    def _on(self, nodes: NodeTable) -> Iterator[tuple[Uid, int, Nomination]]:
        for uid in sorted(self._by_uid):
            nomination = self._by_uid[uid]
            row = nodes.rows.get(nomination.node_name)
            if row is not None:
                yield uid, row, nomination
