"""Whether a container is started again, and when.

Source: the kubelet of Kubernetes 1.36, and the back-off of client-go with the kubelet's times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.podsync.facts import (
    ALWAYS,
    NEVER,
    ON_FAILURE,
    ContainerRules,
    PodRules,
    RuntimePod,
    RuntimeState,
)

FIRST_S: Final = 10.0
"""Seconds between the first two restarts."""
LONGEST_S: Final = 300.0
"""Most seconds between two restarts; a container that ran twice as long starts from the first."""

_RESTART: Final = "Restart"


def restarts_after(rules: PodRules, container: ContainerRules, exit_code: int) -> bool:
    """Return whether a container that ended with `exit_code` is started again."""
    own = container.restart_policy
    if own is not None:
        rule = next((one for one in container.exit_code_rules if one.matches(exit_code)), None)
        if rule is not None and rule.action == _RESTART:
            return True
    policy = own if own in (ALWAYS, ON_FAILURE, NEVER) else rules.restart_policy
    return exit_code != 0 if policy == ON_FAILURE else policy != NEVER


def is_due(rules: PodRules, container: ContainerRules, seen: RuntimePod) -> bool:
    """Return whether a container that may not be there, or may have ended, is started."""
    if rules.is_deleted:
        return False
    found = seen.container(container.name)
    if found is None:
        return True
    if found.state is RuntimeState.RUNNING:
        return False
    if found.state is not RuntimeState.EXITED:
        return True
    return restarts_after(rules, container, found.exit_code)


@dataclass
class _Pause:
    length_s: float
    updated_s: float


class RestartBackoff:
    """The pauses before restarts, by a key that changes with the definition of the container."""

    def __init__(
        self,
        clock: Callable[[], float],
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._clock, self._first_s, self._longest_s = clock, first_s, longest_s
        self._pauses: dict[str, _Pause] = {}

    def length_s(self, key: str) -> float:
        """Return the length of the current pause, 0 without one."""
        pause = self._pauses.get(key)
        return pause.length_s if pause is not None else 0.0

    def waits_until_s(self, key: str, ended_s: float) -> float | None:
        """Return until when a container that ended at `ended_s` waits; None if it may start."""
        pause = self._pauses.get(key)
        if pause is None or self._is_over(pause, ended_s):
            return None
        until_s = ended_s + pause.length_s
        return until_s if self._clock() < until_s else None

    def start(self, key: str, ended_s: float) -> None:
        """Record that a container that ended at `ended_s` is started now."""
        pause = self._pauses.get(key)
        if pause is None or self._is_over(pause, ended_s):
            length_s = self._first_s
        else:
            length_s = min(pause.length_s * 2, self._longest_s)
        self._pauses[key] = _Pause(length_s, self._clock())

    def forget(self, prefix: str) -> None:
        """Forget the pauses of all keys that begin with `prefix`."""
        self._pauses = {
            key: pause for key, pause in self._pauses.items() if not key.startswith(prefix)
        }

    def _is_over(self, pause: _Pause, ended_s: float) -> bool:
        return ended_s - pause.updated_s > 2 * self._longest_s
