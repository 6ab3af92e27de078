"""Which pods of a node its last report includes.

A report is late: it lacks pods that were bound after it was made, and their amounts are deducted
from the available amounts. A pod is in one of these states:

                    bound
                      |          a report includes it
                      v       ------------------------->
                  DEDUCTED                                 INCLUDED
                      |       <-------------------------      |
               it ends|        a list or fingerprint          |it ends
                      v             without it                v
                   PASSED     <------------------------->    GONE
                      |       a list or fingerprint           |
                      '-------------> forgotten <-------------'

A report includes a pod

- if it lists the pod's UID (the annotation of Bindery's node agent), or
- if its fingerprint is the fingerprint of a set with this pod, or
- without list and fingerprint, if the zones' use covers the pod and all included ones, and the
  report is newer than the first sight of the pod as running. The first report of a node covers
  pods that ran before.

The amounts of a gone pod are given back at once, but only if the report's use is exactly that of
the records of its pods. Ended pods are forgotten after `MOST_TRIED` others, and by a new report
without list and fingerprint. Pure: a `NodeHistory` is never changed, only replaced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bindery.api import numaplacement, podfingerprint
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects.watched import Pod
from bindery.scheduler.plugins.numa.amounts import Amounts, HeldZones
from bindery.scheduler.plugins.numa.asks import Ask
from bindery.scheduler.plugins.numa.reports import ZoneReport

MOST_TRIED: Final = 12
"""Maximum number of newest pods that a fingerprint may lack, and of ended pods that are known."""
_TWICE: Final = 2
_RUNNING: Final = "Running"
_LATER: Final = "~"
"""Sorts after every time."""

Parts = Mapping[str, HeldZones]
"""Pod UID -> what the pod holds: by the report, else by its record, else guessed. Without pods of
unknown zones."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on a node, or one that was on it."""

    uid: str
    namespace: str
    name: str
    ask: Ask | None
    """What it asks of zones; None for nothing."""
    key: tuple[str, int]
    """Sorts the pods of a node in the order in which they came."""
    record: NumaPlacement | None
    runs: bool
    """Whether its containers run."""
    ran: bool = False
    """Whether its containers ran at the look before the last."""
    is_old: bool = False
    """Whether it ran already when the node was first looked at."""
    newer_reports: int = 0
    """Number of reports since it was first seen running."""
    ended_at: int | None = None
    """When it ended, in the same count as the second part of `key`."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeHistory:
    """The pods of one node with zones, as far as its reports and pods have shown them."""

    report: ZoneReport
    pods: Mapping[str, BoundPod] = field(default_factory=dict)
    """UID -> pod, in the order in which they came; only pods that ask for something of zones."""
    others: Mapping[str, BoundPod] = field(default_factory=dict)
    """UID -> pod, of the other pods: a fingerprint may have all."""
    ended: Mapping[str, BoundPod] = field(default_factory=dict)
    """UID -> pod, of pods that have ended lately, in this order."""
    included: frozenset[str] = frozenset()
    """UIDs of the pods that the report includes."""
    parts: Parts = field(default_factory=dict)
    is_exact: bool = False
    """Whether the report's use is exactly that of the parts of the included pods."""

    is_new: bool = True
    """Whether the report has not been compared with the pods yet."""
    is_first: bool = True
    """Whether the pods of the node have not been looked at yet."""
    number: int = 0
    """The number of the report."""
    predicted: Mapping[str, int] = field(default_factory=dict)
    """UID of a deducted pod -> number of the report by which its zones were predicted."""
    seen: int = 0
    """The number of comings and ends of pods so far."""

    def deducted(self) -> list[BoundPod]:
        """Return the present pods that the report does not include, in their order."""
        return [pod for pod in self.pods.values() if pod.uid not in self.included]

    def gone(self) -> list[BoundPod]:
        """Return the ended pods that the report still includes."""
        return [pod for pod in self._ended_asking() if pod.uid in self.included]

    def passed(self) -> list[BoundPod]:
        """Return the ended pods that the report never had; the next ones came beside them."""
        return [pod for pod in self._ended_asking() if pod.uid not in self.included]

    def given_back(self) -> list[BoundPod]:
        """Return the ended pods whose amounts are free although the report includes them."""
        if not self.is_exact:
            return []
        return [pod for pod in self.gone() if pod.record or self.report.part(pod.uid)]

    def _ended_asking(self) -> list[BoundPod]:
        return [pod for pod in self.ended.values() if pod.ask is not None]


def renewed(history: NodeHistory, report: ZoneReport) -> NodeHistory:
    """Return `history` with a new report."""
    return replace(history, report=report, is_new=True, number=history.number + 1)


def with_pods(
    history: NodeHistory,
    pods: Mapping[str, Pod],
    coming: Mapping[str, NumaPlacement],
    ask_of: Callable[[Pod], Ask | None],
) -> NodeHistory:
    """Return `history` with the present pods of the node.

    `coming`: UID -> zones in the BindRequest, for pods at the binder. They are the record of a pod
    whose annotation has not been seen.
    """
    seen, ended = history.seen, dict(history.ended)
    kept, others = dict(history.pods), dict(history.others)
    for known in (kept, others):
        for uid in sorted(known.keys() - pods.keys()):
            seen += 1
            ended[uid] = replace(known.pop(uid), ended_at=seen)
    for uid in list(ended)[: max(len(ended) - MOST_TRIED, 0)]:
        del ended[uid]
    for uid, pod in pods.items():
        bound, runs = kept.get(uid), pod.status.phase == _RUNNING
        if bound is not None:
            if (bound.ran, bound.runs) != (bound.runs, runs):
                kept[uid] = replace(bound, ran=bound.runs, runs=runs)
        elif uid not in others:
            seen += 1
            ended.pop(uid, None)
            ask = ask_of(pod)
            kind = others if ask is None else kept
            kind[uid] = _bound(pod, ask, coming.get(uid), seen, is_first=history.is_first)
    return replace(
        history,
        pods=dict(sorted(kept.items(), key=lambda item: item[1].key)),
        others=others,
        ended=ended,
        included=history.included & (kept.keys() | ended.keys()),
        parts={uid: part for uid, part in history.parts.items() if uid in kept or uid in ended},
        predicted={
            uid: number for uid, number in history.predicted.items() if uid in pods or uid in coming
        },
        seen=seen,
        is_first=False,
    )


def _bound(
    pod: Pod, ask: Ask | None, coming: NumaPlacement | None, seen: int, *, is_first: bool
) -> BoundPod:
    meta = pod.metadata
    record = numaplacement.from_record(meta.annotations.get(NUMA_ZONES_ANNOTATION), meta.uid)
    runs = pod.status.phase == _RUNNING
    # The node sees bindings in the same order as this watch; a list has no order.
    since = (pod.status.start_time or meta.creation_timestamp or "") if is_first else _LATER
    key, is_old = (since, seen), is_first and runs
    names = meta.uid, meta.namespace, meta.name
    return BoundPod(*names, ask, key, record or coming, runs, is_old=is_old)


def compared(history: NodeHistory, used: Amounts) -> NodeHistory:
    """Return `history` with the pods that the report includes. `used`: the use of its zones.

    The parts of all pods must be known if they can be.
    """
    report = history.report
    included = _signed(history) if report.pods is None and report.fingerprint is not None else None
    if report.pods is not None:
        included = report.pods & (history.pods.keys() | history.ended.keys())
    if included is not None:
        history = replace(history, included=included)
    else:
        history = _covered(history, used)
    return replace(history, is_new=False, is_exact=_is_exact(history, used))


def elsewhere(before: NodeHistory, after: NodeHistory) -> list[str]:
    """Return the pods that a report includes since `before`, on other zones than recorded.

    Only reports with the parts of pods show it. Pods that were there before this process looked at
    the node are left out, as an earlier process has counted them.
    """
    if before.is_first:
        return []
    known = {**after.ended, **after.pods}
    found = []
    for uid in sorted(after.included - before.included):
        pod, part = known.get(uid), after.report.part(uid)
        if pod is None or pod.record is None or part is None:
            continue
        ids = after.report.ids
        zones = [ids[zone] for zone, held in enumerate(part.amounts) if any(held.values())]
        if zones != sorted(pod.record.zones):
            found.append(uid)
    return found


def _signed(history: NodeHistory) -> frozenset[str] | None:
    """Return a set of pods with the report's fingerprint; None if there is none.

    The report may lack the newest pods, and may include pods that ended last.
    """
    counted = [*history.pods.values(), *history.others.values(), *history.ended.values()]
    if history.report.counts_exclusive:
        counted = [pod for pod in counted if pod.ask is not None]
    ordered = sorted(counted, key=lambda pod: pod.key)
    ended = [uid for uid, pod in history.ended.items() if pod in counted]
    for lacking in range(min(len(ordered), MOST_TRIED) + 1):
        come = ordered[: len(ordered) - lacking]
        for left in range(len(ended) + 1):
            without = frozenset(ended[: len(ended) - left])
            included = [pod for pod in come if pod.uid not in without]
            named = [(pod.namespace, pod.name) for pod in included]
            if podfingerprint.sign(named) == history.report.fingerprint:
                return frozenset(pod.uid for pod in included)
    return None


def _covered(history: NodeHistory, used: Amounts) -> NodeHistory:
    """Return `history` with the pods that the use of the zones covers as included."""
    has_sign = history.report.fingerprint is not None
    pods, included, left = dict(history.pods), set(history.included), used.copy()
    for uid in included & pods.keys() & history.parts.keys():
        left -= history.parts[uid].amounts
    for uid, pod in history.pods.items():
        part = history.parts.get(uid)
        if uid in included:
            continue
        if part is None:  # it ran before, and lies on several zones
            if pod.is_old:
                included.add(uid)
            continue
        if history.is_new and pod.ran:
            pods[uid] = replace(pod, newer_reports=pod.newer_reports + 1)
        # A report with a fingerprint will show a new pod by another one.
        if (pod.is_old or not has_sign) and _is_covered(pods[uid], part.amounts, left):
            included.add(uid)
            left -= part.amounts
    ended = {} if history.is_new and not has_sign else history.ended
    return replace(history, pods=pods, ended=ended, included=frozenset(included))


def _is_covered(pod: BoundPod, amounts: Amounts, left: Amounts) -> bool:
    """Return whether use that no other pod explains (`left`) covers `pod`."""
    if pod.is_old or pod.newer_reports >= _TWICE:
        # The zones of the record may be wrong; the node as a whole must cover the pod.
        return bool((amounts.sum(axis=0) <= left.sum(axis=0)).all())
    return pod.newer_reports > 0 and bool((amounts <= left).all())


def _is_exact(history: NodeHistory, used: Amounts) -> bool:
    held = [pod.uid for pod in history.pods.values() if pod.uid in history.included]
    held += [pod.uid for pod in history.gone()]
    if any(uid not in history.parts for uid in held):
        return False
    total = sum((history.parts[uid].amounts for uid in held), used * 0)
    return bool(np.array_equal(total, used))
