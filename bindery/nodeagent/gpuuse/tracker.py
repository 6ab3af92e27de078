"""Since when the GPUs of each pod are unused. Pure.

A GPU whose use is unknown counts as used, and a pod's GPUs are idle no longer than this process has
seen it, unless the pod's annotation has an earlier time that no seen use contradicts.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from bindery.nodeagent.devices.inventory import Use


@dataclass(frozen=True)
class UseRules:
    """When GPUs are idle.

    Attributes:
        threshold_percent: from this use on, a GPU is used.
        report_after_s: the shortest time without use that is written, as pauses are normal.
    """

    threshold_percent: int = 1
    report_after_s: float = 30.0


@dataclass(frozen=True)
class GpuUser:
    """A running pod with GPUs.

    Attributes:
        uid: the pod's.
        gpus: UUIDs.
        annotation: the written time; "" if there is none.
        idle_since_s: the same in seconds; None if there is none or it is unreadable.
    """

    uid: str
    gpus: frozenset[str]
    annotation: str = ""
    idle_since_s: float | None = None


@dataclass(slots=True)
class _Seen:
    """What is known of a pod; `since_s`: None while its GPUs are not idle."""

    gpus: frozenset[str]
    first_s: float
    since_s: float | None = None


@dataclass
class UseTracker:
    """Follows the use of the GPUs of one node.

    Call `observe` with each reading, and then `changes`. Times are seconds since the epoch.
    """

    rules: UseRules
    _first_s: dict[str, float] = field(default_factory=dict)
    """UUID -> the first of the readings without a gap."""
    _used_s: dict[str, float] = field(default_factory=dict)
    """UUID -> the last reading in which it was used."""
    _is_used: dict[str, bool] = field(default_factory=dict)
    """UUID -> whether it was used at the last reading, if that is known."""
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def observe(self, now_s: float, use: Use) -> None:
        """Take a reading at `now_s`."""
        self._is_used = {
            uuid: percent >= self.rules.threshold_percent
            for uuid, percent in use.items()
            if percent is not None
        }
        self._first_s = {uuid: self._first_s.get(uuid, now_s) for uuid in self._is_used}
        self._used_s.update({uuid: now_s for uuid, is_used in self._is_used.items() if is_used})

    def changes(self, now_s: float, users: Iterable[GpuUser]) -> dict[str, float | None]:
        """Return UID -> the time to write, None to remove it; all pods with GPUs are in `users`."""
        found: dict[str, float | None] = {}
        seen: dict[str, _Seen] = {}
        for user in users:
            known = self._seen.get(user.uid)
            if known is None or known.gpus != user.gpus:
                known = _Seen(user.gpus, now_s if known is None else known.first_s)
            seen[user.uid] = known
            is_ours = known.since_s is not None
            known.since_s = self._since(now_s, user, known)
            if known.since_s is None:
                # Other tools may know the use of GPUs that this process cannot read.
                if user.annotation and (is_ours or self._has_used(user)):
                    found[user.uid] = None
            elif now_s - known.since_s >= self.rules.report_after_s:
                if user.idle_since_s != known.since_s:
                    found[user.uid] = known.since_s
            elif user.annotation and user.idle_since_s != known.since_s:
                found[user.uid] = None
        self._seen = seen
        return found

    def _has_used(self, user: GpuUser) -> bool:
        return any(self._is_used.get(uuid) for uuid in user.gpus)

    def _since(self, now_s: float, user: GpuUser, known: _Seen) -> float | None:
        """Return since when the GPUs are idle, whole seconds; None if they are not."""
        if any(self._is_used.get(uuid, True) for uuid in user.gpus):
            return None
        if known.since_s is not None:
            return known.since_s
        last_used_s = max(self._used_s.get(uuid, -math.inf) for uuid in user.gpus)
        written_s = user.idle_since_s
        if written_s is not None and last_used_s <= written_s <= now_s:
            return written_s
        looks_s = (self._first_s[uuid] for uuid in user.gpus)
        return float(math.ceil(max(known.first_s, last_used_s, *looks_s)))
