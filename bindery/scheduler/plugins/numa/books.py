"""Which pods of a node its last report includes.

A report is late: pods that were bound after it was made are not in it, and their amounts must be
taken from what it says is available. A pod counts as included

- if the report lists its UID (the annotation of Bindery's node agent), or
- if the fingerprint in the report is that of a set of pods with this one, or
- without list and fingerprint, if the zones' use covers the pod and all included ones, and the
  report is newer than the first sight of the pod as running.

Until then its amounts stay deducted. A pod that has ended, and that the report still includes,
gives its amounts back at once, but only if the report's use is exactly that of the records of its
pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bindery.api import numaplacement, podfingerprint
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects.watched import Pod
from bindery.scheduler.plugins.numa.asks import Ask, Asks
from bindery.scheduler.plugins.numa.reports import ZoneReport
from bindery.scheduler.plugins.numa.table import Amounts, HeldZones

_MOST_TRIED: Final = 12
"""Maximum number of newest pods that a fingerprint may lack, and of ended pods that are known."""
_TWICE: Final = 2
_RUNNING: Final = "Running"
_LATER: Final = "~"
"""Sorts after every time."""

Records = Mapping[str, NumaPlacement]
"""Pod UID -> zones in its BindRequest."""


@dataclass(slots=True, eq=False)
class BoundPod:
    """A pod on a node."""

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
    part: HeldZones | None = None
    """What it holds: by its record, else guessed; None until it is known."""
    is_included: bool = False
    is_old: bool = False
    """Whether it ran already when the node was first looked at."""
    newer_reports: int = 0
    """Number of reports since it was first seen running."""
    ended_at: int | None = None
    """When it ended, in the same count as the second part of `key`."""


@dataclass(slots=True, eq=False)
class Book:
    """The pods of one node with zones."""

    report: ZoneReport
    pods: dict[str, BoundPod] = field(default_factory=dict)
    """UID -> pod; only those that ask for something of zones."""
    others: dict[str, BoundPod] = field(default_factory=dict)
    """UID -> pod, of the other pods: a fingerprint may have all."""
    ended: dict[str, BoundPod] = field(default_factory=dict)
    """UID -> pod, of pods that have ended lately, in this order."""
    is_new: bool = True
    """Whether the report has not been compared with the pods yet."""
    is_first: bool = True
    is_exact: bool = False
    """Whether the report's use is exactly that of the records of the included pods."""

    _first: dict[str, int] = field(default_factory=dict)
    """Pod -> number of the report by which its record was predicted."""
    _seen: int = 0
    """The number of pods seen so far."""
    _number: int = 0
    """The number of the report."""

    @property
    def gone(self) -> list[BoundPod]:
        """The ended pods that the report still includes."""
        return [pod for pod in self.ended.values() if pod.is_included and pod.ask is not None]

    def renew(self, report: ZoneReport) -> None:
        """Take over a new report."""
        self.report, self.is_new = report, True
        self._number += 1

    def note(self, uid: str) -> bool:
        """Note a pod that the report does not include; return whether its record may be old."""
        return self._first.setdefault(uid, self._number) != self._number

    def in_order(self) -> list[BoundPod]:
        """Return the pods in the order in which they came."""
        return sorted(self.pods.values(), key=lambda pod: pod.key)

    def see(self, pods: Mapping[str, Pod], asks: Asks, records: Records) -> None:
        """Take over the present pods of the node. `records`: of pods without an annotation."""
        for known_pods in (self.pods, self.others):
            for uid in sorted(known_pods.keys() - pods.keys()):
                self._seen += 1
                self.ended[uid] = known_pods.pop(uid)
                self.ended[uid].ended_at = self._seen
        while len(self.ended) > _MOST_TRIED:
            del self.ended[next(iter(self.ended))]
        for uid in self._first.keys() - pods.keys() - records.keys():
            del self._first[uid]
        for uid, pod in pods.items():
            known = self.pods.get(uid)
            if known is not None:
                known.ran, known.runs = known.runs, pod.status.phase == _RUNNING
            elif uid not in self.others:
                ask = asks.of_pod(pod)
                kind = self.others if ask is None else self.pods
                kind[uid] = self._bound(pod, ask, records)
        self.is_first = False

    def _bound(self, pod: Pod, ask: Ask | None, records: Records) -> BoundPod:
        meta = pod.metadata
        record = numaplacement.from_record(meta.annotations.get(NUMA_ZONES_ANNOTATION), meta.uid)
        runs = pod.status.phase == _RUNNING
        # The node sees bindings in the same order as this watch; a list has no order.
        since = _LATER
        if self.is_first:
            since = pod.status.start_time or meta.creation_timestamp or ""
        self._seen += 1
        return BoundPod(
            meta.uid,
            meta.namespace,
            meta.name,
            ask,
            (since, self._seen),
            record or records.get(meta.uid),
            runs,
            is_old=self.is_first and runs,
        )

    def compare(self, used: Amounts) -> None:
        """Decide which pods the report includes. `used`: what the zones say is in use.

        The parts of all pods must be known, or None if they cannot be.
        """
        if self.report.pods is not None:
            self._compare_list(self.report.pods)
        elif self.report.fingerprint is None or not self._compare_fingerprint():
            self._compare_use(used)
        self.is_new = False
        self.is_exact = self._is_exact(used)

    def _compare_list(self, listed: frozenset[str]) -> None:
        for pod in (*self.pods.values(), *self.ended.values()):
            pod.is_included = pod.uid in listed

    def _compare_fingerprint(self) -> bool:
        """Look for a set of pods with the report's fingerprint; return whether there is one.

        The report lacks the newest pods, and has those that ended last.
        """
        counted = (*self.pods.values(), *self.others.values(), *self.ended.values())
        if self.report.counts_exclusive:
            counted = tuple(pod for pod in counted if pod.ask is not None)
        ordered = sorted(counted, key=lambda pod: pod.key)
        ended = [uid for uid, pod in self.ended.items() if pod in counted]
        for lacking in range(min(len(ordered), _MOST_TRIED) + 1):
            come = ordered[: len(ordered) - lacking]
            for left in range(min(len(ended), _MOST_TRIED) + 1):
                without = frozenset(ended[: len(ended) - left])
                included = [pod for pod in come if pod.uid not in without]
                named = [(pod.namespace, pod.name) for pod in included]
                if podfingerprint.sign(named) == self.report.fingerprint:
                    for pod in counted:
                        pod.is_included = pod in included
                    return True
        return False

    def _compare_use(self, used: Amounts) -> None:
        has_sign = self.report.fingerprint is not None
        left = used.copy()
        for pod in self.pods.values():
            if pod.is_included and pod.part is not None:
                left -= pod.part.amounts
        for pod in self.in_order():
            if pod.is_included:
                continue
            if pod.part is None:  # it ran before, and lies on several zones
                pod.is_included = pod.is_old
                continue
            if self.is_new and pod.ran:
                pod.newer_reports += 1
            if has_sign and not pod.is_old:  # the fingerprint will show it
                continue
            amounts = pod.part.amounts
            if _is_covered(pod, amounts, left):
                pod.is_included = True
                left -= amounts
        if self.is_new and not has_sign:
            self.ended = {}

    def _is_exact(self, used: Amounts) -> bool:
        included = [pod for pod in (*self.pods.values(), *self.gone) if pod.is_included]
        if any(pod.part is None for pod in included):
            return False
        total = sum((pod.part.amounts for pod in included if pod.part is not None), used * 0)
        return bool(np.array_equal(total, used))

    def deducted(self) -> list[BoundPod]:
        """Return the pods that the report does not include, in the order in which they came."""
        return [pod for pod in self.in_order() if not pod.is_included]

    def passed(self) -> list[BoundPod]:
        """Return the ended pods that the report never had; the next ones came beside them."""
        return [p for p in self.ended.values() if not p.is_included and p.ask is not None]

    def given_back(self) -> Iterable[BoundPod]:
        """Return the ended pods whose amounts are free although the report includes them."""
        return [pod for pod in self.gone if pod.record is not None] if self.is_exact else ()


def _is_covered(pod: BoundPod, amounts: Amounts, left: Amounts) -> bool:
    """Return whether use that no other pod explains (`left`) covers `pod`."""
    if pod.is_old or pod.newer_reports >= _TWICE:
        # The zones of the record may be wrong; the node as a whole must cover the pod.
        return bool((amounts.sum(axis=0) <= left.sum(axis=0)).all())
    return pod.newer_reports > 0 and bool((amounts <= left).all())
