"""Dependencies of Runs, and the manager's part in their start: data and Protocols only.

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
        """Take in an attempt that will be repeated."""

    def concluded(self, parts: Sequence[CommittedStatement], outcome: Outcome) -> None:
        """Take in a final outcome that stands in the status of the parts."""


@dataclass(frozen=True)
class RunDependencies:
    """The dependencies of all Runs."""

    port: BindingPort
    store: RequestStore
    plugins: PluginChain
    reporter: Reporter
    clock: Callable[[], float]
    """Seconds since the epoch."""
    pause: Callable[[float], Awaitable[bool]]
    """Waits so many seconds; False: the process is about to stop."""
    draw: Callable[[], float]
    """A random number from 0 to 1."""
    max_backoff_s: float


class StartGate(Protocol):
    """The manager's part in the start of a Run."""

    @property
    def wait(self) -> Wait:
        """What the Run waits for before its first attempt."""

    async def wait_turn(self) -> None:
        """Wait for the ends of the Runs that come before."""

    async def claim(self, parts: Sequence[CommittedStatement]) -> Mapping[str, PodFailure]:
        """Take the pods; return which must not be bound, and why."""
