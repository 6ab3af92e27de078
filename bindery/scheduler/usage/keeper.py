"""Who looks after past usage while a scheduler leads, and how it complains.

`keeping.py` chooses the keeper, `process.py` enters it for each term. Invariant: a keeper never
stops planning; what goes wrong is logged, counted and told as an event.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import structlog

from bindery.api.usage import UsageConfiguration
from bindery.kube.events import EventRecorder, ObjectReference
from bindery.kube.lease import Leadership
from bindery.scheduler.usage.metrics import USAGE_ERRORS

_log = structlog.get_logger()


class UsageKeeper(Protocol):
    """Looks after the source of past usage."""

    def kept(self, leadership: Leadership) -> AbstractAsyncContextManager[None]:
        """Look after it while the context is entered, which is for one term."""
        ...

    def configure(self, configuration: UsageConfiguration) -> None:
        """Go by `configuration` from now on, the source aside."""
        ...


class NoKeeper:
    """For sources that need no looking after."""

    @asynccontextmanager
    async def kept(self, _leadership: Leadership) -> AsyncIterator[None]:
        """Do nothing."""
        yield

    def configure(self, configuration: UsageConfiguration) -> None:
        """Do nothing."""


class Complaints:
    """Says that past usage is not as it should be. `about`: the object of the events."""

    def __init__(self, events: EventRecorder, about: ObjectReference) -> None:
        self._events = events
        self._about = about

    def error(self, operation: str, reason: str, problem: str) -> None:
        """Count, log and tell a failed `operation`. `reason`: one CamelCase word."""
        USAGE_ERRORS.labels(operation).inc()
        self.warning(reason, problem)

    def warning(self, reason: str, problem: str) -> None:
        """Log and tell."""
        _log.warning("past usage", reason=reason, problem=problem)
        self._events.warning(self._about, reason, problem)
