"""The binder's memory of Statements: one entry each, with the state of each of its parts.

`manager` turns the news of watches and Runs into events; `TRANSITIONS` has the next state for each.
All that is known of a Statement is in its entry, so that forgetting the entry leaves nothing. A
Statement in one BindRequest is a single part. Pure memory.

               SHOWN      CHANGED  FINAL     STARTED  ENDED
    NEW        NEW        NEW      FINISHED  -        -
    COPY       NEW        NEW      COPY      -        -
    REFUSED    NEW        NEW      FINISHED  -        -
    GATHERING  GATHERING  NEW      FINISHED  RUNNING  -
    RUNNING    RUNNING    CHANGED  SETTLED   RUNNING  ENDED
    CHANGED    CHANGED    CHANGED  SETTLED   RUNNING  ENDED
    SETTLED    RUNNING    CHANGED  SETTLED   SETTLED  FINISHED
    ENDED      ENDED      NEW      FINISHED  RUNNING  -
    FINISHED   NEW        NEW      FINISHED  SETTLED  -

A NEW part is judged at once, and is then COPY, REFUSED or GATHERING. A part that is gone is
forgotten in every state.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Final

import msgspec

from bindery.binder.outcome.outcome import Wait, WaitReason
from bindery.binder.run.run import Run
from bindery.kube.objects.bindrequests import CommittedStatement, StatementKey


class State(Enum):
    """The state of a part."""

    NEW = auto()
    """The part must be judged."""
    COPY = auto()
    """Another request carries the same part."""
    REFUSED = auto()
    """The part is malformed, and reported."""
    GATHERING = auto()
    """The part waits for other parts, or for parts that agree with it."""
    RUNNING = auto()
    """A Run executes the part."""
    CHANGED = auto()
    """The Run of the former spec is being rolled back."""
    SETTLED = auto()
    """The part has its outcome, and the Run still executes other parts."""
    ENDED = auto()
    """The Run has ended, and the watch has not delivered an outcome."""
    FINISHED = auto()
    """The watch has delivered the outcome."""


class Event(IntEnum):
    """An event of a part; the number of its column in `TRANSITIONS`."""

    SHOWN = 0
    """The watch delivers the part with its known spec and no outcome."""
    CHANGED = 1
    """The watch delivers the part with another spec and no outcome."""
    FINAL = 2
    """The watch delivers the outcome."""
    STARTED = 3
    """A Run takes the part."""
    ENDED = 4
    """The Run has ended."""


TRANSITIONS: Final[dict[State, tuple[State | None, ...]]] = {
    State.NEW: (State.NEW, State.NEW, State.FINISHED, None, None),
    State.COPY: (State.NEW, State.NEW, State.COPY, None, None),
    State.REFUSED: (State.NEW, State.NEW, State.FINISHED, None, None),
    State.GATHERING: (State.GATHERING, State.NEW, State.FINISHED, State.RUNNING, None),
    State.RUNNING: (State.RUNNING, State.CHANGED, State.SETTLED, State.RUNNING, State.ENDED),
    State.CHANGED: (State.CHANGED, State.CHANGED, State.SETTLED, State.RUNNING, State.ENDED),
    State.SETTLED: (State.RUNNING, State.CHANGED, State.SETTLED, State.SETTLED, State.FINISHED),
    State.ENDED: (State.ENDED, State.NEW, State.FINISHED, State.RUNNING, None),
    State.FINISHED: (State.NEW, State.NEW, State.FINISHED, State.SETTLED, None),
}
"""For each state, the next state at each event. None: the event cannot occur."""

OPEN: Final = frozenset({State.GATHERING, State.RUNNING, State.CHANGED, State.ENDED})
"""Admitted parts without an outcome from the watch."""
UNDER_A_RUN: Final = frozenset({State.RUNNING, State.CHANGED, State.SETTLED})
_HAS_OUTCOME: Final = frozenset({State.SETTLED, State.FINISHED})


@dataclass(eq=False)
class Part:
    """A Statement, or a part of one, in one request."""

    statement: CommittedStatement
    """The Statement in its newest state."""
    is_adopted: bool
    """Whether another process may have worked on the part before its next Run."""
    since_s: float
    """Time of the judgement, in seconds since the epoch."""
    state: State = State.NEW
    is_wait_written: bool = False
    """Whether the wait reason of the part was written."""
    refused_at: int | None = None
    """The generation of the part that was reported as malformed."""
    is_examined: bool = False
    """Whether the part is a copy, and the other request is being read from the API server."""

    @property
    def key(self) -> StatementKey:
        """The part's key among the parts of all Statements."""
        return self.statement.key

    @property
    def uid(self) -> str:
        """The UID of the part's request."""
        return self.statement.metadata.uid

    def take(self, statement: CommittedStatement) -> Event:
        """Store a state from the watch; return the event."""
        is_changed = self.statement.is_changed_in(statement)
        self.statement = statement
        if statement.is_final:
            return Event.FINAL
        self.is_adopted |= is_changed
        return Event.CHANGED if is_changed else Event.SHOWN

    def refresh(self, statement: CommittedStatement) -> None:
        """Store the state in which a Run leaves the part, unless a newer spec has come."""
        if self.statement.metadata.generation <= statement.metadata.generation:
            self.statement = statement


@dataclass(eq=False)
class StatementEntry:
    """All state about one Statement."""

    namespace: str
    id: str
    carriers: dict[str, Part] = field(default_factory=dict)
    """Name of a request -> the part in it."""
    runs: list[Run] = field(default_factory=list)
    """Runs that have not ended, the newest last."""
    followers: int = 0
    """Number of Runs that depend on this Statement."""
    _news: asyncio.Event | None = None

    @property
    def parts(self) -> list[Part]:
        """The parts in order, without copies and malformed parts."""
        found: dict[int, Part] = {}
        for part in self.carriers.values():
            number = part.key.part
            if part.state in OPEN or (part.state in _HAS_OUTCOME and number not in found):
                found[number] = part
        return [found[number] for number in sorted(found)]

    @property
    def is_complete(self) -> bool:
        """Whether all parts are known."""
        parts = self.parts
        return bool(parts) and len(parts) == parts[0].statement.spec.parts

    @property
    def is_ready(self) -> bool:
        """Whether a part lacks an outcome, and no part waits for another.

        Then all parts are known, or none will be bound.
        """
        statements = [part.statement for part in self.parts]
        if all(each.is_final for each in statements):
            return False
        return self.is_complete or any(each.is_withdrawn for each in statements)

    @property
    def is_under_a_run(self) -> bool:
        """Whether a Run has one of the parts."""
        return any(part.state in UNDER_A_RUN for part in self.parts)

    @property
    def is_open(self) -> bool:
        """Whether the watch lacks the outcome of a part."""
        return any(part.state in OPEN for part in self.carriers.values())

    @property
    def is_needed(self) -> bool:
        """Whether the entry contains any state."""
        return bool(self.carriers or self.runs or self.followers)

    @property
    def wait(self) -> Wait | None:
        """The parts for which the others wait; None if all are known."""
        parts = self.parts
        if not parts or self.is_complete:
            return None
        text = f"{len(parts)} of the {parts[0].statement.spec.parts} parts of its Statement exist"
        return Wait(WaitReason.WAITS_FOR_PARTS, text)

    def find(self, statement: CommittedStatement) -> Part | None:
        """Return the part in the request of `statement`, in its stored state."""
        part = self.carriers.get(statement.metadata.name)
        return part if part is not None and part.uid == statement.metadata.uid else None

    def run_of(self, part: Part) -> Run | None:
        """Return the newest Run of a part, if one has not ended."""
        for run in reversed(self.runs):
            if run.has(part.statement):
                return run
        return None

    def other_carrier(self, part: Part) -> Part | None:
        """Return the same part in another request, if that request has no outcome."""
        others = (each for each in self.carriers.values() if each is not part)
        return next((each for each in others if each.state in OPEN and each.key == part.key), None)

    def phases(self) -> set[str]:
        """Return the phases of the parts."""
        counted = (part for part in self.carriers.values() if part.state is not State.COPY)
        return {part.statement.status.phase for part in counted}

    def shed(self) -> None:
        """Forget the pods of a Statement that has ended: requests are kept for minutes."""
        parts = self.parts
        if self.runs or not self.is_complete or any(p.state is not State.FINISHED for p in parts):
            return
        for part in parts:
            spec = msgspec.structs.replace(part.statement.spec, pods=[])
            part.statement = msgspec.structs.replace(part.statement, spec=spec)

    def wake_waiters(self) -> None:
        """Wake the waiters for news."""
        if self._news is not None:
            self._news.set()
            self._news = None

    def news(self) -> asyncio.Event:
        """Return the event that the next change sets."""
        self._news = self._news or asyncio.Event()
        return self._news
