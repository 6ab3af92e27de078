"""The topology constraint that a gang, or a part of it, asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from bindery.grouper.table import settings
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import ProblemReason
from bindery.grouper.table.rows import TopologyKey
from bindery.grouper.table.settings import Found, Setting
from bindery.grouper.table.steps import Notes, Step, find_first, text
from bindery.grouper.table.walk import Link
from bindery.kube.objects.podgroups import Segments, TopologyConstraint

Value = TypeVar("Value")


@dataclass(frozen=True)
class FoundConstraint:
    """A constraint in the making."""

    topology: Found[str] | None = None
    required: Found[str] | None = None
    preferred: Found[str] | None = None
    tier: Found[int] | None = None
    mode: Found[Any] | None = None
    size: Found[int] | None = None
    segment_required: Found[str] | None = None
    segment_preferred: Found[str] | None = None

    @property
    def source(self) -> str:
        """The object that gave the first of the values."""
        found = (
            self.required,
            self.preferred,
            self.segment_required,
            self.segment_preferred,
            self.size,
            self.tier,
            self.mode,
        )
        return next((str(each) for each in found if each is not None), "")

    def constraint(self, *, segments: bool = True) -> TopologyConstraint | None:
        """Return the constraint; None if nothing is asked for. `segments`: whether to cut."""
        required, preferred = _value(self.required), _value(self.preferred)
        cut = self._segments() if segments else None
        if required or preferred or cut is not None:
            return TopologyConstraint(
                name=_value(self.topology), required=required, preferred=preferred, segments=cut
            )
        if self.tier is not None or self.mode is not None:
            return TopologyConstraint(hyper_node_tier=_value(self.tier), mode=_value(self.mode))
        return None

    def segments_alone(self) -> TopologyConstraint | None:
        """Return a constraint with the segments, for a part of the group that has the rest."""
        cut = self._segments()
        if cut is None:
            return None
        return TopologyConstraint(name=_value(self.topology), segments=cut)

    def _segments(self) -> Segments | None:
        required, preferred = _value(self.segment_required), _value(self.segment_preferred)
        if not required and not preferred:
            required, preferred = _value(self.required), _value(self.preferred)
        if self.size is None or not (required or preferred):
            return None
        return Segments(size=self.size.value, required=required, preferred=preferred)


_SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    "required": settings.TOPOLOGY_REQUIRED,
    "preferred": settings.TOPOLOGY_PREFERRED,
    "tier": settings.TIER,
    "mode": settings.TIER_MODE,
    "size": settings.SEGMENT_SIZE,
    "segment_required": settings.SEGMENT_REQUIRED,
    "segment_preferred": settings.SEGMENT_PREFERRED,
}
"""Field of `FoundConstraint` -> the setting that the nearest link decides."""


def find_place(
    at: Reference,
    links: Sequence[Link],
    paths: Mapping[TopologyKey, str],
    scope: Mapping[str, Any],
    names: Sequence[Link] = (),
) -> Step[FoundConstraint]:
    """Return the constraint that `links` ask for, else the one that `paths` lead to in `scope`.

    `at`: the object of the gang. `names`: further links above, which may name the topology.
    """
    notes = Notes()

    def of_path(key: TopologyKey) -> Found[str] | None:
        found = notes.take(find_first(at, [paths[key]] if key in paths else (), scope, text))
        return None if found is None else Found(found, at)

    found: dict[str, Any] = {
        name: notes.take(settings.look_up(setting, links)) for name, setting in _SETTINGS.items()
    }
    topology = notes.take(settings.look_up(settings.TOPOLOGY, (*links, *names)))
    if found["required"] is None and found["preferred"] is None and paths:
        topology = topology or of_path("name")
        found |= {"required": of_path("required"), "preferred": of_path("preferred")}
        found |= {"tier": None, "mode": None}
    place = FoundConstraint(topology=topology, **found)
    if place.size is not None and place.constraint() is None:
        message = (
            f"{settings.SEGMENT_SIZE.keys[0]} has no effect without a level in "
            f"{settings.SEGMENT_REQUIRED.keys[0]} or {settings.TOPOLOGY_REQUIRED.keys[0]}"
        )
        notes.add(place.size.source, ProblemReason.INVALID_VALUE, message)
    return notes.step(place)


def _value(found: Found[Value] | None) -> Value | None:
    return None if found is None else found.value
