"""The Protocol of usage keepers, which load, store or fetch past usage while a scheduler leads.

`keeping.py` chooses the keeper, and `process.py` enters it for each term. Invariant: an error of a
keeper never stops planning; it is logged, counted and reported as an event.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import structlog

from bindery.api.usage import UsageConfiguration
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.kube.lease import Leadership
from bindery.scheduler.usage.metrics import USAGE_ERRORS

_log = structlog.get_logger()


class UsageKeeper(Protocol):
    """Keeps the source of past usage up to date."""

    def kept(self, leadership: Leadership) -> AbstractAsyncContextManager[None]:
        """Return the context in which it works; entered for one term."""

    def configure(self, configuration: UsageConfiguration) -> None:
        """Use `configuration` from now on, except for the source."""


class NoKeeper:
    """The keeper of sources that need none."""

    @asynccontextmanager
    async def kept(self, _leadership: Leadership) -> AsyncIterator[None]:
        """Do nothing."""
        yield

    def configure(self, configuration: UsageConfiguration) -> None:
        """Do nothing."""


class UsageProblems:
    """Reports problems with past usage. `about`: the object of the events."""

    def __init__(self, events: EventRecorder, about: ObjectReference) -> None:
        self._events = events
        self._about = about

    def error(self, operation: str, reason: str, problem: str) -> None:
        """Count and report a failed `operation`. `reason`: one CamelCase word."""
        USAGE_ERRORS.labels(operation).inc()
        self.warning(reason, problem)

    def warning(self, reason: str, problem: str) -> None:
        """Report a problem in the log and as an event."""
        _log.warning("past usage", reason=reason, problem=problem)
        self._events.warning(self._about, reason, problem)
