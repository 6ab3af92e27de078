"""Unexpected errors, confined to the object that caused them.

An error during intake, planning or reporting of an object ends only the work on that object. The
cluster records errors of watch events. Actions and reports run the work on each job inside
`Defects.held_to`. The process logs and counts the collected errors.
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
"""A process that does not lead collects defects until it leads."""
_MOST_FRAMES = 24
_MOST_TEXT = 300


class DefectStage(StrEnum):
    """The work on the object that failed."""

    INTAKE = "intake"
    PLANNING = "planning"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that caused an error."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Defect:
    """An unexpected error."""

    stage: DefectStage
    subject: Subject
    text: str
    """Its type and message, shortened and escaped."""
    trace: str
    """Its traceback; empty if an equal error was recorded before."""


class Defects:
    """The errors since the last `take`."""

    def __init__(self) -> None:
        self._found: deque[Defect] = deque(maxlen=_MOST_KEPT)
        self._seen: set[Defect] = set()
        self.fresh = 0
        """Number of recorded errors that were not equal to an earlier one."""

    @contextmanager
    def held_to(
        self, stage: DefectStage, subject: Subject, then: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Record an error of the block as one of `subject`; then call `then` with its text.

        Cancellation and interrupts are not caught.
        """
        try:
            yield
        except Exception as error:
            text = self.note(stage, subject, error)
            if then is not None:
                then(text)

    def note(self, stage: DefectStage, subject: Subject, error: Exception) -> str:
        """Record `error`; return its text for people."""
        text = shown(f"{type(error).__name__}: {error}", _MOST_TEXT)
        known = Defect(stage, subject, text, "")
        if known in self._seen:
            self._found.append(known)
            return text
        if len(self._seen) >= _MOST_KEPT:  # bounds the memory; old errors are logged in full again
            self._seen.clear()
        self._seen.add(known)
        self.fresh += 1
        frames = traceback.format_exception(error, limit=-_MOST_FRAMES)
        self._found.append(Defect(stage, subject, text, "".join(frames)))
        return text

    def take(self) -> list[Defect]:
        """Return the recorded errors and remove them."""
        found = list(self._found)
        self._found.clear()
        return found


def of_job(key: JobKey) -> Subject:
    """Return the subject of the job `key`: its PodGroup, or its single pod."""
    return Subject("PodGroup" if key.is_group else "Pod", key.namespace, key.name)
