"""Results of the pure steps of a plan: a value, with the problems and sources found on the way."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import Problem, ProblemReason
from bindery.grouper.table.paths import PathError, find, integer

Value = TypeVar("Value")


@dataclass(frozen=True)
class Step(Generic[Value]):
    """The result of one step."""

    value: Value
    problems: frozenset[Problem] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field of the spec -> `Kind/name` of the object that gave its value."""


class Notes:
    """Merges the steps of one function. Of two sources of a field, the later one counts."""

    def __init__(self) -> None:
        self.problems: set[Problem] = set()
        self.sources: dict[str, str] = {}

    def take(self, step: Step[Value]) -> Value:
        """Add the problems and sources of `step`; return its value."""
        self.problems |= step.problems
        self.sources |= step.sources
        return step.value

    def add(self, at: Reference, reason: ProblemReason, message: str) -> None:
        """Add a problem at the object `at`."""
        self.problems.add(Problem(at, reason, message))

    def step(self, value: Value) -> Step[Value]:
        """Return `value` with everything that was added."""
        return Step(value, frozenset(self.problems), self.sources)


def find_first(
    at: Reference, paths: Iterable[str], item: object, read: Callable[[Any], Value | None]
) -> Step[Value | None]:
    """Return the first value in `item` that `paths` lead to and `read` returns; None if none does.

    A path that fails is a problem at the object `at`, and the next path is tried.
    """
    notes = Notes()
    for path in paths:
        try:
            value = read(find(path, item))
        except PathError as error:
            notes.add(at, ProblemReason.PATH_NOT_FOUND, str(error))
            continue
        if value is not None:
            return notes.step(value)
    return notes.step(None)


def number(value: object) -> int | None:
    """Return `value` as an integer that is at least 0; None if there is no value.

    Raises:
        PathError: `value` is not a whole number.
    """
    return None if value is None else max(0, integer(value))


def text(value: object) -> str | None:
    """Return `value` if it is a text that is not empty."""
    return value if isinstance(value, str) and value else None
