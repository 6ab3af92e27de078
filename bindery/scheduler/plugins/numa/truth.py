"""What the zones of nodes have free between cycles: their reports, and what came since.

Changes only mark nodes. The next session works out the marked nodes again, and cached predictions
of all others stay valid.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindery.api import numaplacement
from bindery.api.numaplacement import NumaPlacement
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Meta, Node, Pod
from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.requests import PodRequest
from bindery.nodecore.prediction.zones import NodeZones
from bindery.scheduler.model.jobs import NO_ROW, Task, TaskStatus, Uid
from bindery.scheduler.model.problems import ObjectProblem
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.numa.asks import Ask, Asks
from bindery.scheduler.plugins.numa.books import Book
from bindery.scheduler.plugins.numa.reports import ReportError, ZoneReport, read
from bindery.scheduler.plugins.numa.table import NO_SLOT, Amounts, HeldZones, Side, ZoneTable

INVALID_REPORT: Final = "InvalidNodeResourceTopology"
"""The reason of the event at a node whose report cannot be used."""

Handed = tuple[Uid, str, Mapping[str, Any]]
"""Pod UID, node name and data for the binder."""

_ENDS: Final = "~"
_LAST: Final = ("~~", 0)
"""Sorts after all pods on nodes."""


class UnreportedPod(NamedTuple):
    """A pod that the report does not include."""

    uid: str
    ask: Ask | None
    part: HeldZones | None
    """What it holds by its record."""
    key: tuple[str, int]
    """Sorts pods in the order in which they came."""
    ended_at: int | None = None
    """When it ended, in the same count as the second part of `key`."""


_MOST_AFTERS: Final = 1 << 16


class Truth:
    """The zones of nodes without any plan."""

    def __init__(self) -> None:
        self.table = ZoneTable()
        self.asks = Asks()
        self.books: dict[int, Book] = {}
        """Slot -> the pods of the node."""
        self.problems: list[ObjectProblem] = []
        """Reports that cannot be used, for events; each once."""
        self.predictions = 0
        """The number of pods planned so far."""
        self._told: dict[str, str] = {}
        """Node name -> the last problem of its report."""
        self._reports: dict[str, NodeResourceTopology] = {}
        self._nodes: dict[str, Node] = {}
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """Node name -> UID -> pod, for pods that have not ended."""
        self._places: dict[str, str] = {}
        """Pod UID -> node name."""
        self._coming: dict[str, dict[str, NumaPlacement]] = {}
        """Node name -> pods at the binder -> their zones."""
        self._marked: dict[str, None] = {}
        """The nodes to work out again, in order."""
        self._unread: dict[str, None] = {}
        """The nodes whose report must be read again."""
        self._releasing: dict[int, frozenset[str]] = {}
        """Slot -> the pods that count as releasing."""
        self._afters: dict[tuple[Any, ...], NodeZones] = {}
        """Pod and zones of a node -> its zones with the pod."""
        self._slots_of_rows: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._rows_version: tuple[int, int, int] = (-1, -1, -1)

    # -- changes, between sessions ---------------------------------------------------------------

    def put_report(self, report: NodeResourceTopology, *, gone: bool) -> None:
        """Note a new state of a report."""
        name = report.metadata.name
        if gone:
            self._reports.pop(name, None)
        else:
            self._reports[name] = report
        self._unread[name] = None

    def put_node(self, node: Node, *, gone: bool) -> None:
        """Note a new state of a node."""
        name = node.metadata.name
        known = self._nodes.get(name)
        if gone:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        # Status writes are frequent, and only the capacity is compared with the report.
        if gone or known is None or known.status.capacity != node.status.capacity:
            self._unread[name] = None

    def put_pod(self, pod: Pod, *, gone: bool) -> None:
        """Note a new state of a pod."""
        uid, name = pod.metadata.uid, pod.spec.node_name
        gone = gone or not name or pod.status.phase in ENDED_POD_PHASES
        known = self._places.get(uid)
        if known is not None and (gone or known != name):
            del self._places[uid]
            del self._pods[known][uid]
            self.mark(known)
        if not gone:
            self._places[uid] = name
            self._pods[name][uid] = pod
            self.mark(name)

    def mark(self, name: str) -> None:
        """Let the node `name` be worked out again."""
        if name in self.table.slots:
            self._marked[name] = None

    @property
    def has_zones(self) -> bool:
        """Whether there is any report."""
        return bool(self._reports)

    # -- the next session ------------------------------------------------------------------------

    def read_reports(self, *, in_session: bool = False) -> bool:
        """Read the changed reports; return whether a node has other zones than before.

        `in_session`: a node that does not exist now will not come with the same list.
        """
        version = self.table.version
        for name in sorted(self._unread):
            if in_session or name in self._nodes or name not in self._reports:
                del self._unread[name]
                self._read(name)
        return self.table.version != version

    def slots_of_rows(self, nodes: NodesView) -> NDArray[np.intp]:
        """Return node row -> slot; `NO_SLOT` for a node without zones. Do not write to it."""
        version = nodes.version, self.table.version, len(nodes.nodes)
        if version != self._rows_version:
            found = np.full(len(nodes.nodes), NO_SLOT, dtype=np.intp)
            for name, slot in self.table.slots.items():
                row = nodes.rows.get(name, NO_ROW)
                if row != NO_ROW:
                    found[row] = slot
            self._slots_of_rows, self._rows_version = found, version
        return self._slots_of_rows

    def settle(self, tasks: Mapping[Uid, Task], handed: Iterable[Handed]) -> None:
        """Work out the nodes that have changed since the last session."""
        self._note_handed(tasks, handed)
        for slot, uids in self._releasing.items():
            # An eviction may have been refused, which no event of the pod shows.
            if uids != self._leaving(slot, tasks):
                self._marked[self.table.names[slot]] = None
        for name in self._marked:
            slot = self.table.slot(name)
            if slot != NO_SLOT:
                self._work_out(slot, tasks)
        self._marked.clear()
        self.table.trim()

    def part(self, uid: str, slot: int) -> HeldZones | None:
        """Return what the pod `uid` holds of the zones of its node; None if it is not known."""
        book = self.books.get(slot)
        pod = book.pods.get(uid) if book is not None else None
        if pod is not None:
            return pod.part
        record = self._coming.get(self.table.names[slot], {}).get(uid)
        return self._recorded(record, slot) if record is not None else None

    # -- reports -----------------------------------------------------------------------------------

    def _read(self, name: str) -> None:
        node, stored = self._nodes.get(name), self._reports.get(name)
        found: ZoneReport | None = None
        if stored is None:
            self._told.pop(name, None)
        elif node is None:
            kind = NODE_RESOURCE_TOPOLOGIES
            self._tell(stored.metadata, kind.api_version, kind.kind, f"there is no node {name}")
        else:
            try:
                found = read(stored, node.status.capacity or {})
                self._told.pop(name, None)
            except ReportError as error:
                text = f"its NodeResourceTopology is not used: {error}"
                self._tell(node.metadata, NODES.api_version, NODES.kind, text)
        slot = self.table.slot(name)
        if found is None:
            if slot != NO_SLOT:
                self.books.pop(slot, None)
                self._releasing.pop(slot, None)
                self.table.remove(name)
            return
        slot = self.table.put(name, found.zones)
        book = self.books.get(slot)
        if book is None:
            self.books[slot] = Book(found)
        else:
            book.renew(found)
        self._marked[name] = None

    def _tell(self, meta: Meta, api_version: str, kind: str, text: str) -> None:
        if self._told.get(meta.name) != text:
            self._told[meta.name] = text
            self.problems.append(ObjectProblem(api_version, kind, meta, INVALID_REPORT, text))

    # -- pods --------------------------------------------------------------------------------------

    def _note_handed(self, tasks: Mapping[Uid, Task], handed: Iterable[Handed]) -> None:
        coming: defaultdict[str, dict[str, NumaPlacement]] = defaultdict(dict)
        for uid, name, data in handed:
            task = tasks.get(uid)
            # A pod that is bound has a record of its own.
            if task is None or task.pod_node or task.status.has_ended:
                continue
            placement = numaplacement.from_data(data)
            if placement is not None:
                coming[name][uid] = placement
        for name in coming.keys() | self._coming.keys():
            if coming.get(name) != self._coming.get(name):
                self.mark(name)
        self._coming = dict(coming)

    def _leaving(self, slot: int, tasks: Mapping[Uid, Task]) -> frozenset[str]:
        book, name = self.books[slot], self.table.names[slot]
        uids = (*book.pods, *self._coming.get(name, ()))
        return frozenset(uid for uid in uids if _is_releasing(tasks.get(Uid(uid))))

    def _work_out(self, slot: int, tasks: Mapping[Uid, Task]) -> None:
        """Set what is free on a node, now and after all releases."""
        table, book, name = self.table, self.books[slot], self.table.names[slot]
        coming = self._coming.get(name, {})
        book.see(self._pods.get(name, {}), self.asks, coming)
        for pod in (*book.pods.values(), *book.ended.values()):
            if pod.record is not None:
                pod.part = self._recorded(pod.record, slot)
        if book.pods or book.ended:
            used = self._used(book.report)
            self._guess(book, used)
            book.compare(used)
            self._guess(book, used)
        leaving = self._leaving(slot, tasks)
        with table.changing(slot):
            self._set_now(slot, book, coming, tasks)
            table.later.copy(slot, table.now)
            for uid in sorted(leaving):
                part = self.part(uid, slot)
                if part is not None:
                    self._give(slot, table.later, part)
            table.apart[slot] = len(leaving)
        if leaving:
            self._releasing[slot] = leaving
        else:
            self._releasing.pop(slot, None)

    def _set_now(
        self,
        slot: int,
        book: Book,
        coming: Mapping[str, NumaPlacement],
        tasks: Mapping[Uid, Task],
    ) -> None:
        now = self.table.now
        now.set(slot, book.report.zones)
        for pod in book.pods.values():
            if pod.is_included and pod.part is not None and pod.part.spans:
                now.spans[slot].update(pod.part.spans)
        now.regroup(slot)
        for pod in book.given_back():
            if pod.part is not None:
                self._give(slot, now, pod.part)
        waiting: list[UnreportedPod] = [
            UnreportedPod(pod.uid, pod.ask, pod.part, pod.key) for pod in book.deducted()
        ]
        for uid, record in coming.items():
            part, ask = self._recorded(record, slot), self._ask(tasks.get(Uid(uid)))
            waiting.append(UnreportedPod(uid, ask, part, _LAST))
        self._deduct(slot, book, waiting)

    def _deduct(self, slot: int, book: Book, waiting: Sequence[UnreportedPod]) -> None:
        """Deduct pods that the report does not include.

        A record was predicted by the report of its time. Where something has changed since, the
        kubelet may have chosen other zones, so both are deducted until the report has the pod.
        """
        is_old = [book.note(pod.uid) for pod in waiting]
        is_unknown = any(pod.part is None for pod in waiting)
        passed = book.passed()
        chosen: Mapping[str, HeldZones] = {}
        if waiting and (is_unknown or any(is_old) or passed or book.given_back()):
            before = [
                UnreportedPod(pod.uid, pod.ask, None, pod.key, pod.ended_at) for pod in passed
            ]
            chosen = self._replayed(slot, [*before, *waiting])
        now = self.table.now
        for pod in waiting:
            part, other = pod.part, chosen.get(pod.uid)
            if other is not None:
                part = other if part is None else part.joined(other)
            if pod.part is None and pod.uid in book.pods:
                book.pods[pod.uid].part = other
            if part is not None:
                now.move(slot, part.within(now.arrays.free[slot]), -1)

    def _replayed(self, slot: int, pods: Sequence[UnreportedPod]) -> dict[str, HeldZones]:
        """Return what each of `pods` takes if the kubelet starts and ends them in their order."""
        table, node = self.table, self.table.now.arrays.node(slot)
        chosen: dict[str, HeldZones] = {}
        starts = [(*pod.key, pod, True) for pod in pods]
        ends = [(_ENDS, pod.ended_at, pod, False) for pod in pods if pod.ended_at is not None]
        for _, _, pod, is_start in sorted([*starts, *ends], key=lambda event: event[:2]):
            if pod.ask is None:
                continue
            if is_start:
                after = self._after(slot, node, pod.ask)
                chosen[pod.uid] = table.part(node, after)
                node = after
            else:
                node = self._without(node, chosen[pod.uid])
        return chosen

    def _without(self, node: NodeZones, part: HeldZones) -> NodeZones:
        """Return the zones of `node` after a pod with `part` has ended."""
        amounts = part.amounts.astype(int).tolist()
        columns = {name: index for index, name in enumerate(self.table.resources)}
        free = tuple(
            {name: amount + amounts[zone][columns[name]] for name, amount in counts.items()}
            for zone, counts in enumerate(node.free)
        )
        return replace(node, free=free, groups=())

    def _used(self, report: ZoneReport) -> Amounts:
        """Return what the zones have in use by the report: of pods alone, as far as is known."""
        return self.table.amounts(report.allocatable) - self.table.amounts(report.zones.free)

    def _after(self, slot: int, node: NodeZones, ask: Ask) -> NodeZones:
        """Return the zones after the kubelet has admitted a pod."""
        state = self.table.amounts(node.free).tobytes(), node.split, node.groups
        key = ask, self.table.epoch, self.table.kinds[slot], state
        after = self._afters.get(key)
        if after is None:
            predicted = plain.predict(node, ask.request)
            after = predicted.after
            if not predicted.admit:  # it runs, so the report is behind
                after = plain.take(node, ask.request, 0)
            if len(self._afters) >= _MOST_AFTERS:
                self._afters.clear()
            self._afters[key] = after
        return after

    def _ask(self, task: Task | None) -> Ask | None:
        return self.asks.of(task.shape) if task is not None else None

    @staticmethod
    def _give(slot: int, side: Side, part: HeldZones) -> None:
        """Give back a part, as far as the zones have room for it."""
        room = side.arrays.totals[slot] - side.arrays.free[slot]
        side.move(slot, part.within(room), 1)

    def _recorded(self, record: NumaPlacement, slot: int) -> HeldZones:
        """Return what a pod holds by its record; zones that the node does not have are left out."""
        table, ids = self.table, self.books[slot].report.ids
        held = [record.held.get(str(number), {}) for number in ids]
        amounts = table.amounts(held)
        mask = table.memory_zones(amounts)
        spans = (mask,) if mask & (mask - 1) else ()
        return HeldZones(amounts, np.zeros(table.now.arrays.split.shape[1]), spans)

    def _guess(self, book: Book, used: Amounts) -> None:
        """Guess what pods without a record hold: use that no record explains.

        Only for pods that the report includes, or that ran already when the node was first seen.
        """
        unknown = [
            pod
            for pod in book.in_order()
            if pod.part is None and (pod.is_included or (pod.is_old and book.report.pods is None))
        ]
        if not unknown:
            return
        left = used.copy()
        for pod in (*book.pods.values(), *book.gone):
            if (pod.is_included or pod.is_old) and pod.part is not None:
                left -= pod.part.amounts
        for pod in unknown:
            assert pod.ask is not None, "the other pods hold nothing"
            pod.part = self._on_one_zone(pod.ask.request, left, book.report)
            if pod.part is not None:
                left -= pod.part.amounts

    def _on_one_zone(
        self, request: PodRequest, left: Amounts, report: ZoneReport
    ) -> HeldZones | None:
        wanted = _amounts(request, report)
        for zone in range(len(report.ids)):
            held: Sequence[Mapping[str, int]] = [
                wanted if other == zone else {} for other in range(len(report.ids))
            ]
            amounts = self.table.amounts(held)
            if amounts.any() and (amounts <= left).all():
                return HeldZones(amounts, np.zeros(self.table.now.arrays.split.shape[1]))
        return None


def _amounts(request: PodRequest, report: ZoneReport) -> dict[str, int]:
    """Return what a pod with `request` holds on the node in all."""
    whole, zones = request.whole, report.zones
    amounts = dict(whole.devices)
    if zones.has_static_cpus and whole.cpus:
        amounts[CPU] = whole.cpus
    if zones.has_static_memory:
        amounts |= whole.memory
    return amounts


def _is_releasing(task: Task | None) -> bool:
    return task is not None and task.status is TaskStatus.RELEASING
