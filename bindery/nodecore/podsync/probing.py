"""When a probe runs, and what its results mean. Source: the kubelet's prober, Kubernetes 1.36."""

from dataclasses import dataclass
from enum import StrEnum

from bindery.nodecore.podsync.facts import ProbeVerdict


class ProbeKind(StrEnum):
    """What the result of a probe decides."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"

    @property
    def first_verdict(self) -> ProbeVerdict:
        """The verdict before the probe has run."""
        return {
            ProbeKind.STARTUP: ProbeVerdict.UNKNOWN,
            ProbeKind.LIVENESS: ProbeVerdict.SUCCESS,
            ProbeKind.READINESS: ProbeVerdict.FAILURE,
        }[self]


@dataclass
class ProbeCount:
    """The results of one probe of one container, in a row.

    Attributes:
        is_held: the probe does not run again for this container.
    """

    kind: ProbeKind
    failure_threshold: int = 3
    success_threshold: int = 1
    is_held: bool = False
    _last: bool | None = None
    _run: int = 0

    def is_due(self, *, started: bool, running_s: float, initial_delay_s: float) -> bool:
        """Return whether the probe runs now.

        `started`: whether the container has passed its startup probe. `running_s`: for how long it
        has run.
        """
        if self.is_held or running_s < initial_delay_s:
            return False
        return started != (self.kind is ProbeKind.STARTUP)

    def enter(self, *, success: bool) -> ProbeVerdict | None:
        """Count a result; return the verdict, None if it stays as it was."""
        self._run = self._run + 1 if success == self._last else 1
        self._last = success
        if self._run < (self.success_threshold if success else self.failure_threshold):
            return None
        if self.kind is ProbeKind.STARTUP or (self.kind is ProbeKind.LIVENESS and not success):
            # The container is not probed while it is stopped and started again.
            self.is_held = True
            self._run = 0
        return ProbeVerdict.SUCCESS if success else ProbeVerdict.FAILURE
