"""Judges the evictions of gangs that have lost their minimum: they have a grace period for it.

Judged are schedulers that have shown that the gang had its minimum, and that no fault befell since.
Others may know only from a condition since when a gang lacks pods.
"""

from collections.abc import Iterator
from typing import Final

from bindery.kube.objects.podgroups import PodGroup
from tests.histories.apiserver.store import Change
from tests.histories.calm import RECOVERS_S, Calm
from tests.histories.plan import Plan

_SECOND_S: Final = 1.5
"""What is cut off from times in conditions and pods, and a moment."""


class BrokenGangs:
    """Knows since when gangs lack pods of their minimum. Gangs are known by UID."""

    def __init__(self, plan: Plan) -> None:
        self._calm = Calm(plan)
        self._shown: dict[str, tuple[str, float]] = {}
        """Gang with the condition Scheduled=True -> who wrote it, and when."""
        self._whole: set[str] = set()
        """Gangs that have their minimum."""
        self._since_s: dict[str, float] = {}
        """Gang that lost its minimum, not by an eviction -> since when."""

    def see_group(self, group: PodGroup, change: Change) -> None:
        """Take in a write of a PodGroup."""
        uid = group.metadata.uid
        conditions = group.status.conditions or ()
        if any(each.type == "Scheduled" and each.status == "True" for each in conditions):
            self._shown.setdefault(uid, (change.writer.caller, change.at_s))
        elif uid not in self._since_s:
            self._shown.pop(uid, None)

    def note(self, group: PodGroup, at_s: float, *, has_minimum: bool, is_eviction: bool) -> None:
        """Note whether a gang has its minimum now, and whether a pod of it was evicted."""
        uid = group.metadata.uid
        if has_minimum:
            self._whole.add(uid)
            self._since_s.pop(uid, None)
        elif uid in self._whole:
            self._whole.discard(uid)
            if uid in self._shown and not is_eviction:
                self._since_s[uid] = at_s

    def problems(self, who: str, group: PodGroup, change: Change) -> Iterator[str]:
        """Yield that the rest of a gang is evicted for no other one, and within its grace period.

        `who`: what happens, in words.
        """
        uid = group.metadata.uid
        grace_s, since_s = group.spec.staleness_grace_period_seconds, self._since_s.get(uid)
        if grace_s is None or since_s is None or group.spec.sub_groups:
            return
        caller, shown_s = self._shown[uid]
        if change.writer.caller != caller or not self._calm.is_calm(
            caller, shown_s, change.at_s, recovers_s=RECOVERS_S
        ):
            return
        if change.at_s < since_s + grace_s - _SECOND_S:
            after_s = change.at_s - since_s
            yield f"{who}, which lacks pods for {after_s:.1f} s, in its grace period of {grace_s} s"
