"""When a process of a history can do its work: no fault befalls it, and no other one leads.

Questions about time are asked of calm processes only.
"""

from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from tests.histories.apiserver.store import Change
from tests.histories.plan import EPOCH_S, QUIET_AFTER_S, Fault, FaultKind, Plan

_LEASES: Final = {
    "bindery-scheduler": "scheduler",
    "bindery-binder": "binder",
    "bindery-grouper": "grouper",
}
RECOVERS_S: Final = 35.0
"""The longest pause of a watch after failures, and a moment."""
_LINGERING: Final = frozenset({FaultKind.LAG, FaultKind.DELAY, FaultKind.OLD_ANSWERS})
"""What was sent during such a fault may arrive by as much later as the fault has seconds."""

T = TypeVar("T")


class Leaders:
    """Which process of each kind leads, from the log."""

    def __init__(self) -> None:
        self._leaders: dict[str, tuple[str, float]] = {}
        """Kind of process -> the process that leads, and since when."""

    def see(self, change: Change) -> None:
        """Take in the write of a Lease."""
        kind = _LEASES.get(change.key[1])
        holder = change.version.object["spec"].get("holderIdentity") or ""
        process = holder.rpartition("-")[0]
        if kind and process and self._leaders.get(kind, ("", 0.0))[0] != process:
            self._leaders[kind] = process, change.at_s

    def of(self, kind: str) -> tuple[str, float] | None:
        """Return the process of a kind that took the Lease last, and when; None if none has."""
        return self._leaders.get(kind)


class Calm:
    """Knows the faults of a plan. All times are seconds since the epoch."""

    def __init__(self, plan: Plan) -> None:
        self._faults = plan.faults

    def is_calm(
        self,
        process: str,
        since_s: float,
        until_s: float,
        *,
        recovers_s: float,
        besides: Collection[FaultKind] = (),
    ) -> bool:
        """Whether no fault but `besides` befell a process within a time.

        `recovers_s`: how long after a fault its consequences last.
        """
        return not any(
            process.startswith(fault.process)
            and fault.kind not in besides
            and fault.at_s < until_s - EPOCH_S
            and _end_s(fault) + recovers_s > since_s - EPOCH_S
            for fault in self._faults
        )


def in_force(values: Sequence[tuple[float, T]], since_s: float) -> list[T]:
    """Return those of `values` that were in force at some time since `since_s`.

    Each comes with the moment from which it was in force, in the order of these.
    """
    before = [value for at_s, value in values if at_s <= since_s]
    return before[-1:] + [value for at_s, value in values if at_s > since_s]


def _end_s(fault: Fault) -> float:
    """Return when a fault is over. When one begins that strikes at a call is not known."""
    if fault.at_call:
        return QUIET_AFTER_S + fault.seconds
    lingers_s = fault.seconds if fault.kind in _LINGERING else 0.0
    return min(fault.at_s + fault.seconds, QUIET_AFTER_S) + lingers_s
