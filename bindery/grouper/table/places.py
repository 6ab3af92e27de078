"""The topology constraint that a gang, or a part of it, asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bindery.grouper.table import settings
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import Problem, ProblemReason
from bindery.grouper.table.paths import PathError, find
from bindery.grouper.table.rows import TopologyKey
from bindery.grouper.table.settings import Found, Setting
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


@dataclass(frozen=True)
class Reader:
    """Reads places from links, and from the paths of a row."""

    problems: set[Problem]
    item: Mapping[str, Any] = field(default_factory=dict)
    at: Reference | None = None

    def place(
        self,
        links: Sequence[Link],
        paths: Mapping[TopologyKey, str],
        scope: Mapping[str, Any],
        names: Sequence[Link] = (),
    ) -> FoundConstraint:
        """Return what `links` ask for, else what `paths` lead to in `scope`.

        `names`: further links above, in which the name of the topology may stand.
        """
        place = FoundConstraint(
            topology=self._look(settings.TOPOLOGY, (*links, *names)),
            required=self._look(settings.TOPOLOGY_REQUIRED, links),
            preferred=self._look(settings.TOPOLOGY_PREFERRED, links),
            tier=self._look(settings.TIER, links),
            mode=self._look(settings.TIER_MODE, links),
            size=self._look(settings.SEGMENT_SIZE, links),
            segment_required=self._look(settings.SEGMENT_REQUIRED, links),
            segment_preferred=self._look(settings.SEGMENT_PREFERRED, links),
        )
        if place.required is None and place.preferred is None and paths:
            place = FoundConstraint(
                topology=place.topology or self._at_path(paths.get("name"), scope),
                required=self._at_path(paths.get("required"), scope),
                preferred=self._at_path(paths.get("preferred"), scope),
                size=place.size,
                segment_required=place.segment_required,
                segment_preferred=place.segment_preferred,
            )
        self._tell_useless(place)
        return place

    def _look(self, setting: Setting[Value], links: Sequence[Link]) -> Found[Value] | None:
        return settings.look_up(setting, links, self.problems)

    def _at_path(self, path: str | None, scope: Mapping[str, Any]) -> Found[str] | None:
        if path is None or self.at is None:
            return None
        try:
            found = find(path, scope)
        except PathError as error:
            self.problems.add(Problem(self.at, ProblemReason.PATH_NOT_FOUND, str(error)))
            return None
        return Found(found, self.at) if isinstance(found, str) and found else None

    def _tell_useless(self, place: FoundConstraint) -> None:
        """Tell about segments without a level: they cannot be placed."""
        if place.size is not None and place.constraint() is None:
            message = (
                f"{settings.SEGMENT_SIZE.keys[0]} has no effect without a level in "
                f"{settings.SEGMENT_REQUIRED.keys[0]} or {settings.TOPOLOGY_REQUIRED.keys[0]}"
            )
            self.problems.add(Problem(place.size.source, ProblemReason.INVALID_VALUE, message))


def _value(found: Found[Value] | None) -> Value | None:
    return None if found is None else found.value
