"""Unexpected errors, held to the object that they are about.

Whatever an object raises while it is taken in, planned or reported ends nothing but the work on
that object. The cluster notes what watch events raise; actions and reports run the work on each job
in `Defects.held_to`. The process logs and counts what is collected here.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from bindery.api.shown import shown
from bindery.scheduler.model.jobs import JobKey

_MOST_KEPT = 1000
"""A process that does not lead keeps defects until it does."""
_MOST_FRAMES = 24
_MOST_TEXT = 300


class Stage(StrEnum):
    """What was being done with the object."""

    INTAKE = "intake"
    PLANNING = "planning"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an error is about."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Defect:
    """An error that nobody has foreseen."""

    stage: Stage
    subject: Subject
    text: str
    """Its type and message, cut and escaped."""
    trace: str
    """Where it was raised; empty where an equal one has been noted before."""


class Defects:
    """The errors since they were last taken."""

    def __init__(self) -> None:
        self._found: deque[Defect] = deque(maxlen=_MOST_KEPT)
        self._seen: set[Defect] = set()
        self.fresh = 0
        """How many have been noted of which none was like an earlier one."""

    @contextmanager
    def held_to(
        self, stage: Stage, subject: Subject, then: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Catch what the block raises about `subject`; call `then` with its text.

        Process-wide ends, such as cancellation and interrupts, pass.
        """
        try:
            yield
        except Exception as error:
            text = self.note(stage, subject, error)
            if then is not None:
                then(text)

    def note(self, stage: Stage, subject: Subject, error: Exception) -> str:
        """Collect `error`; return its text for people."""
        text = shown(f"{type(error).__name__}: {error}", _MOST_TEXT)
        known = Defect(stage, subject, text, "")
        if known in self._seen:
            self._found.append(known)
            return text
        if len(self._seen) >= _MOST_KEPT:
            self._seen.clear()
        self._seen.add(known)
        self.fresh += 1
        frames = traceback.format_exception(error, limit=-_MOST_FRAMES)
        self._found.append(Defect(stage, subject, text, "".join(frames)))
        return text

    def take(self) -> list[Defect]:
        """Return what was collected, and forget it."""
        found = list(self._found)
        self._found.clear()
        return found


def of_job(key: JobKey) -> Subject:
    """Return the job `key` as a subject: its PodGroup, or its single pod."""
    return Subject("PodGroup" if key.is_group else "Pod", key.namespace, key.name)
