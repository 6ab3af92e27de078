"""Makes the PodGroup of one target from its row, its object and its pods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bindery.api import names
from bindery.api.podgroup import PodGroupSpec
from bindery.grouper.table import settings
from bindery.grouper.table.groups import Group, Problem
from bindery.grouper.table.targets import Target
from bindery.grouper.table.walk import Chain, Link, Owners

_MOST_NAME: Final = 180
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True)
class Surroundings:
    """What a plan needs to know besides owners and pods."""

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the pods' namespace."""
    priority_classes: frozenset[str] | None = None
    """The names of all PriorityClasses; None if they are not known."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """UIDs of owners that are gone or may not be read, with the reason. The walk ends there."""


@dataclass(frozen=True)
class Assembly:
    """The pods of one target."""

    members: Sequence[tuple[Target, Chain]]
    owners: Owners
    around: Surroundings
    problems: set[Problem]

    def groups(self) -> Iterator[Group]:
        """Yield the PodGroups."""
        target, chain = self.members[-1]
        links = chain.links
        queue = settings.look_up(settings.QUEUE, links, self.problems)
        least = settings.look_up(settings.MIN_MEMBER, links, self.problems)
        yield Group(
            namespace=chain.pod.namespace,
            name=name_of(target.link, target.value),
            owner=target.link.reference,
            spec=PodGroupSpec(
                min_member=least.value if least else 1,
                queue=queue.value if queue else names.DEFAULT_QUEUE,
            ),
            sources={"queue": str(queue.source)} if queue else {},
            pods=tuple(sorted(chain.pod.uid for _, chain in self.members)),
        )


def name_of(link: Link, value: str) -> str:
    """Return the name of the PodGroup: of `job-train-3f2a9c1d`, the end is from the UID."""
    at = link.reference
    parts = [at.kind.lower(), _NOT_IN_NAMES.sub("-", at.name.lower())[:_MOST_NAME], at.uid[:8]]
    if value:
        parts.append(_NOT_IN_NAMES.sub("-", value.lower()))
    return "-".join(parts).strip("-.")
