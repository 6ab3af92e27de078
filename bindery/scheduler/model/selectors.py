"""Label selectors for matching many pods. Hashable; equal ones compare equal.

As in Kubernetes, a selector that is missing matches nothing, and an empty one matches
everything.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from bindery.kube.objects import selectors as wire


@dataclass(frozen=True)
class Requirement:
    """One expression over labels."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet the expression; an unknown operator is never met."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return False


@dataclass(frozen=True)
class Selector:
    """Expressions that must all be met."""

    requirements: tuple[Requirement, ...] = ()
    is_nothing: bool = False
    """Whether it matches nothing."""

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return not self.requirements and not self.is_nothing

    @cached_property
    def anchor(self) -> Requirement | None:
        """The first requirement of certain label values; only pods with one of them can match."""
        return next((each for each in self.requirements if each.operator == "In"), None)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` are selected."""
        return not self.is_nothing and all(each.is_met(labels) for each in self.requirements)

    def narrowed(self, *requirements: Requirement) -> "Selector":
        """Return the selector with further `requirements`; nothing stays nothing."""
        if self.is_nothing or not requirements:
            return self
        return Selector((*requirements, *self.requirements))


NOTHING = Selector(is_nothing=True)


def selector(read: wire.LabelSelector | None) -> Selector:
    """Return the selector of an API object; None matches nothing."""
    return NOTHING if read is None else Selector(tuple(_requirements(read)))


def _requirements(read: wire.LabelSelector) -> Iterator[Requirement]:
    for key, value in sorted((read.match_labels or {}).items()):
        yield Requirement(key, "In", frozenset((value,)))
    for each in read.match_expressions or ():
        yield Requirement(each.key, each.operator, frozenset(each.values or ()))
