"""Computes the free amounts of a node's zones from its last report and later changes of its pods.

Pure: the same arguments give the same result, and no argument is changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects.watched import Pod
from bindery.nodecore.masks import mask_of
from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.arrays import stack
from bindery.nodecore.prediction.requests import PodRequest
from bindery.nodecore.prediction.zones import NodeZones
from bindery.scheduler.plugins.numa.amounts import Amounts, Axis, FreeZones, HeldZones, groups
from bindery.scheduler.plugins.numa.asks import Ask
from bindery.scheduler.plugins.numa.inclusion import (
    BoundPod,
    NodeHistory,
    Parts,
    compared,
    with_pods,
)
from bindery.scheduler.plugins.numa.reports import ZoneReport

Admit = Callable[[NodeZones, Ask], NodeZones]
"""Returns the zones of a node after the kubelet has admitted a pod."""

_ENDS: Final = "~"
_LAST: Final = ("~~", 0)
"""Sorts after all pods on nodes."""


class ComingPod(NamedTuple):
    """A pod at the binder."""

    record: NumaPlacement
    ask: Ask | None


@dataclass(frozen=True, slots=True, eq=False)
class ObservedPods:
    """The pods of a node, by UID."""

    bound: Mapping[str, Pod]
    """Pods that have not ended."""
    coming: Mapping[str, ComingPod]
    leaving: frozenset[str]
    """Pods that are being deleted or evicted."""


@dataclass(frozen=True, slots=True, eq=False)
class ReconciledNode:
    """What is free on a node."""

    history: NodeHistory
    now: FreeZones
    later: FreeZones
    """What is free after all releases."""
    releases: int
    """Number of pods that make `later` differ from `now`."""


def reconcile(
    history: NodeHistory,
    pods: ObservedPods,
    axis: Axis,
    ask_of: Callable[[Pod], Ask | None],
    admit: Admit,
) -> ReconciledNode:
    """Return what is free on a node by the report in `history` and the observed `pods`."""
    records = {uid: each.record for uid, each in pods.coming.items()}
    history = with_pods(history, pods.bound, records, ask_of)
    history = replace(history, parts=_parts(history, axis))
    if history.pods or history.ended:
        used = _used(history.report, axis)
        history = replace(history, parts=_guessed(history, used, axis))
        history = compared(history, used)
        history = replace(history, parts=_guessed(history, used, axis))
    free, totals = _reported(history, axis), axis.amounts(history.report.zones.totals)
    for gone in history.given_back():  # its spans are not counted, as only present pods' are
        free = free.after_end(replace(history.parts[gone.uid], spans=()), totals)
    history, now = _deducted(history, pods.coming, free, axis, admit)
    leaving = pods.leaving & (history.pods.keys() | pods.coming.keys())
    later = now
    for uid in sorted(leaving):
        part = held_by(history, uid, records.get(uid), axis)
        if part is not None:
            later = later.after_end(part, totals)
    return ReconciledNode(history, now, later, len(leaving))


def held_by(
    history: NodeHistory, uid: str, coming: NumaPlacement | None, axis: Axis
) -> HeldZones | None:
    """Return what the pod `uid` holds of the zones of its node; None if it is not known.

    `coming`: its zones in the BindRequest; None for a pod that is not at the binder.
    """
    if uid in history.pods:
        part = history.parts.get(uid)
        return axis.fitted(part) if part is not None else None
    return recorded(coming, history.report, axis) if coming is not None else None


def recorded(record: NumaPlacement, report: ZoneReport, axis: Axis) -> HeldZones:
    """Return what a pod holds by its record; zones that the node does not have are left out."""
    zones = [record.held.get(str(number), {}) for number in report.ids]
    if record.together is None:
        return axis.held(zones)
    indexes = {number: index for index, number in enumerate(report.ids)}
    known = ([indexes[zone] for zone in group if zone in indexes] for group in record.together)
    return axis.part(zones, tuple(sorted({mask_of(group) for group in known if group})))


def _parts(history: NodeHistory, axis: Axis) -> Parts:
    """Return the known parts: by the report, else by the records, else the earlier guesses."""
    parts = {uid: axis.fitted(part) for uid, part in history.parts.items()}
    for pod in (*history.pods.values(), *history.ended.values()):
        fact = history.report.part(pod.uid)
        if fact is not None:
            parts[pod.uid] = axis.part(fact.amounts, fact.spans)
        elif pod.record is not None:
            parts[pod.uid] = recorded(pod.record, history.report, axis)
    return parts


def _used(report: ZoneReport, axis: Axis) -> Amounts:
    """Return the use of the zones by the report: only of pods, as far as is known."""
    return axis.amounts(report.allocatable) - axis.amounts(report.zones.free)


# -- pods without a record -------------------------------------------------------------------------


def _guessed(history: NodeHistory, used: Amounts, axis: Axis) -> Parts:
    """Return the parts with guesses for pods without a record: use that no record explains.

    Only for pods that the report includes, or that ran already when the node was first seen.
    """
    report, included = history.report, history.included
    unknown = [
        pod
        for pod in history.pods.values()
        if pod.uid not in history.parts
        and (pod.uid in included or (pod.is_old and report.pods is None))
    ]
    if not unknown:
        return history.parts
    parts, left = dict(history.parts), used.copy()
    for pod in (*history.pods.values(), *history.gone()):
        if (pod.uid in included or pod.is_old) and pod.uid in parts:
            left -= parts[pod.uid].amounts
    for pod in unknown:
        assert pod.ask is not None, "the other pods hold nothing"
        guess = _on_one_zone(pod.ask.request, left, report, axis)
        if guess is not None:
            parts[pod.uid] = guess
            left -= guess.amounts
    return parts


def _on_one_zone(
    request: PodRequest, left: Amounts, report: ZoneReport, axis: Axis
) -> HeldZones | None:
    """Return what the pod holds on the first zone where `left` has as much; None without one."""
    wanted = _wanted(request, report)
    for zone in range(len(report.ids)):
        held = axis.held([{}] * zone + [wanted])
        if held.amounts.any() and (held.amounts <= left).all():
            return held
    return None


def _wanted(request: PodRequest, report: ZoneReport) -> dict[str, int]:
    """Return what a pod with `request` holds on the node in all."""
    whole, zones = request.whole, report.zones
    amounts = dict(whole.devices)
    if zones.has_static_cpus and whole.cpus:
        amounts[CPU] = whole.cpus
    if zones.has_static_memory:
        amounts |= whole.memory
    return amounts


# -- pods that the report does not include ---------------------------------------------------------


def _reported(history: NodeHistory, axis: Axis) -> FreeZones:
    """Return what is free by the report alone."""
    spans = Counter(
        span
        for uid in history.included & history.pods.keys() & history.parts.keys()
        for span in history.parts[uid].spans
    )
    zones = history.report.zones
    return FreeZones(axis.amounts(zones.free), axis.split(zones), spans)


def _deducted(
    history: NodeHistory,
    coming: Mapping[str, ComingPod],
    free: FreeZones,
    axis: Axis,
    admit: Admit,
) -> tuple[NodeHistory, FreeZones]:
    """Return `history` and what is free after the deduction of pods that are not in the report.

    The recorded zones were predicted from an older report. If the node has changed since, both the
    recorded and the newly predicted zones are deducted until a report includes the pod.
    """
    parts, predicted = dict(history.parts), dict(history.predicted)
    waiting = history.deducted()
    for uid, (record, ask) in coming.items():
        parts[uid] = recorded(record, history.report, axis)
        waiting.append(BoundPod(uid, "", "", ask, _LAST, record, runs=False))
    passed, chosen = history.passed(), dict[str, HeldZones]()
    is_outdated = [
        predicted.setdefault(pod.uid, history.number) != history.number for pod in waiting
    ]
    is_unknown = [pod.uid not in parts for pod in waiting]
    if any(is_outdated) or any(is_unknown) or (waiting and (passed or history.given_back())):
        node = _node(history.report.zones, free, axis)
        chosen = _replayed(node, [*passed, *waiting], axis, admit)
    for pod in waiting:
        part, other = parts.get(pod.uid), chosen.get(pod.uid)
        if part is None and other is not None:
            part = parts[pod.uid] = other
        elif part is not None and other is not None:
            part = part.joined(other)
        if part is not None:
            free = free.after_start(part)
    kept = {uid: part for uid, part in parts.items() if uid not in coming}
    return replace(history, parts=kept, predicted=predicted), free


def _replayed(
    node: NodeZones, pods: Iterable[BoundPod], axis: Axis, admit: Admit
) -> dict[str, HeldZones]:
    """Return what each of `pods` takes if the kubelet starts and ends them in their order."""
    chosen: dict[str, HeldZones] = {}
    events = [(*pod.key, pod, True) for pod in pods]
    events += [(_ENDS, pod.ended_at, pod, False) for pod in pods if pod.ended_at is not None]
    for _, _, pod, is_start in sorted(events, key=lambda event: event[:2]):
        if pod.ask is None:
            continue
        if is_start:
            after = admit(node, pod.ask)
            chosen[pod.uid] = axis.taken(node, after)
            node = after
        else:
            free = _counts(axis, axis.amounts(node.free) + chosen[pod.uid].amounts, node)
            node = replace(node, free=free, groups=())
    return chosen


def _node(zones: NodeZones, free: FreeZones, axis: Axis) -> NodeZones:
    """Return the zones of a report with what is free now."""
    node = stack([zones]).node(0)
    totals = axis.amounts(zones.totals)
    used_together = groups(free.free.tolist(), totals.tolist(), axis.memory, free.spans)
    count = len(node.free)
    split = tuple(map(int, free.split[:count]))
    free_counts = _counts(axis, free.free, node)
    return replace(node, free=free_counts, split=split, groups=tuple(used_together[:count]))


def _counts(axis: Axis, free: Amounts, node: NodeZones) -> tuple[Mapping[str, int], ...]:
    """Return `free` by zone and resource, for the zones and resources of `node`."""
    return tuple(
        {name: int(free[zone, axis.columns[name]]) for name in counts}
        for zone, counts in enumerate(node.free)
    )
