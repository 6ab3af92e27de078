"""Dependencies of Runs, and the manager's part in their start: only data and Protocols.

Filled by `term`; used by `run`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bindery.binder.outcome.outcome import Outcome, PodFailure, Wait
from bindery.binder.outcome.ports import BindingPort, RequestStore
from bindery.binder.plugins.chain import PluginChain
from bindery.kube.objects.bindrequests import CommittedStatement


class Reporter(Protocol):
    """Reports outcomes of Statements as events and metrics."""

    def attempt_failed(self, parts: Sequence[CommittedStatement], outcome: Outcome) -> None:
        """Report an attempt that will be repeated."""

    def concluded(self, parts: Sequence[CommittedStatement], outcome: Outcome) -> None:
        """Report a final outcome, after it was written into the status of the parts."""


@dataclass(frozen=True)
class RunDependencies:
    """The dependencies of all Runs."""

    port: BindingPort
    store: RequestStore
    plugins: PluginChain
    reporter: Reporter
    clock: Callable[[], float]
    """Returns seconds since the epoch."""
    pause: Callable[[float], Awaitable[bool]]
    """Waits for seconds; returns False when the process is to stop."""
    draw: Callable[[], float]
    """Returns a random number from 0 to 1."""
    max_backoff_s: float


class StartGate(Protocol):
    """The manager's part in the start of a Run."""

    @property
    def wait(self) -> Wait:
        """What the Run waits for before its first attempt."""

    async def wait_turn(self) -> None:
        """Wait until the earlier Runs have ended."""

    async def claim(self, parts: Sequence[CommittedStatement]) -> Mapping[str, PodFailure]:
        """Claim the pods; return the pods that must not be bound, with reasons."""
