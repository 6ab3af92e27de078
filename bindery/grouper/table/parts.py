"""The parts of a gang: the roles of a row, filled in for one object."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bindery.grouper.table.facts import KubeObject, mapping
from bindery.grouper.table.groups import ProblemReason
from bindery.grouper.table.paths import PathError, entries, fill, find
from bindery.grouper.table.rows import (
    After,
    Lead,
    Paths,
    Role,
    Row,
    StageCondition,
    StageName,
    TopologyKey,
)
from bindery.grouper.table.steps import Notes, Step, number
from bindery.grouper.table.templates import metadata_links
from bindery.grouper.table.walk import Chain, Link
from bindery.kube.objects.podgroups import Dependency, TopologyConstraint

_MOST_PARTS: Final = 10_000
_FIRST: Final = "0"
_ONE: Final[Paths] = ("`1`",)


@dataclass(frozen=True)
class PlannedSubGroup:
    """A sub-group: a leaf with pods, or an inner one."""

    name: str
    role: str
    """The name of the role, the same for all replicas."""
    parent: str | None = None
    count: int | None = None
    """Maximum number of pods; None if it is unknown."""
    least: int = 0
    """How many must run together."""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_inner: bool = False
    holds: tuple[str, ...] = ()
    """The names of the parts directly below it, where the object lists them."""
    own_kind: str | None = None
    """The kind of the object that makes the pods of this part alone."""
    metadata: tuple[Link, ...] = ()
    """The labels and annotations of its templates, nearest to the pod first."""
    template: Mapping[str, Any] | None = None
    after: tuple[Dependency, ...] = ()
    topology: Mapping[TopologyKey, str] = field(default_factory=dict)
    """Paths to the topology of the part, from `scope`."""
    scope: Mapping[str, Any] = field(default_factory=dict)
    constraint: TopologyConstraint | None = None
    """The domain of the part, if no label or annotation decides about it."""


class Observed:
    """The pods of a group, by their labels."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        """`chains` are sorted, the oldest pod first."""
        self.chains = chains
        self._by_label: dict[tuple[str, str], list[Chain]] = {}
        for chain in chains:
            for pair in chain.pod.labels.items():
                self._by_label.setdefault(pair, []).append(chain)

    def having(self, labels: Mapping[str, str]) -> Sequence[Chain]:
        """Return the chains of the pods with all of `labels`."""
        if not labels:
            return self.chains
        found = min((self._by_label.get(pair, []) for pair in labels.items()), key=len)
        return [chain for chain in found if labels.items() <= chain.pod.labels.items()]


class Filler:
    """Fills in the roles of a row."""

    def __init__(self, row: Row, link: Link, observed: Observed) -> None:
        self._row, self._at, self._observed = row, link.reference, observed
        self._item: KubeObject = link.item or {}

    def parts(self) -> Step[tuple[PlannedSubGroup, ...]]:
        """Return the parts, each after its parent.

        Without roles, or if all of them are left out, there is one part, without a name.
        """
        notes, found = Notes(), list[PlannedSubGroup]()
        for role in self._row.roles:
            for scope in self._scopes(role, notes):
                try:
                    found += self._of_role(role, scope, found, notes)
                except PathError as error:
                    self._add(notes, error)
            if len(found) > _MOST_PARTS:
                self._add(notes, PathError(f"more than {_MOST_PARTS} sub-groups"))
                return notes.step(tuple(found[:_MOST_PARTS]))
        return notes.step(tuple(_linked(found)) or (self._whole(notes),))

    def total(self) -> int | None:
        """Return the minimum that the row finds in the object; None if it finds none."""
        if not self._row.min or not self._row.roles:
            return None
        scope = self._scope(self._item, {}, None)
        try:
            return _count(self._row.min, scope)
        except PathError:
            return None

    def _whole(self, notes: Notes) -> PlannedSubGroup:
        row = self._row
        scope = self._scope(self._item, {}, None)
        least, count = 1, None
        try:
            counted = row.min if row.roles else row.count
            count = _count(counted, scope) if counted else None
            least = _count(row.min or row.left or row.count or _ONE, scope)
        except PathError as error:
            self._add(notes, error)
        template = _template(row.template, scope)
        links = metadata_links(self._at, template, ())
        return PlannedSubGroup("", "", None, count, least, metadata=links, template=template)

    def _scopes(self, role: Role, notes: Notes) -> list[dict[str, Any]]:
        """Return the scopes of the paths of `role`: the object, or each element of its list."""
        if role.each is None:
            return [{**self._item, "_root": self._item}]
        try:
            found = find(role.each, self._item)
        except PathError as error:
            self._add(notes, error)
            return []
        if isinstance(found, Mapping):
            pairs = sorted(found.items())
        else:
            pairs = list(enumerate(found)) if isinstance(found, list) else []
        return [
            {
                **(element if isinstance(element, Mapping) else {"_value": element}),
                "_root": self._item,
                "_key": key,
                "_index": index,
            }
            for index, (key, element) in enumerate(pairs)
        ]

    def _of_role(
        self, role: Role, scope: dict[str, Any], before: Sequence[PlannedSubGroup], notes: Notes
    ) -> list[PlannedSubGroup]:
        if role.skip is not None and find(role.skip, scope):
            return []
        name = fill(role.name, scope)
        scope["_name"] = name
        part = PlannedSubGroup(
            name=name,
            role=name,
            own_kind=role.owner,
            template=_template(role.template, scope),
            after=tuple(_dependencies(role.after, scope, before)),
            topology=role.topology,
            scope=scope,
        )
        if role.holds:
            held = next(filter(None, (entries(path, scope) for path in role.holds)), [])
            domain = _domain(role.domain, scope)
            return [replace(part, is_inner=True, holds=tuple(map(str, held)), constraint=domain)]
        metadata = [find(path, scope) for path in role.metadata]
        part = replace(part, metadata=metadata_links(self._at, part.template, metadata))
        if role.children is None:
            part = self._filled(part, role, scope, notes)
            return [] if part.count == 0 else [part]
        found: list[PlannedSubGroup] = []
        for replica in range(min(_count(role.children.count, scope), _MOST_PARTS)):
            inside = {**scope, "_replica": replica}
            name = fill(role.children.name, inside)
            leaf = replace(part, name=name, parent=part.name, after=())
            leaf = self._filled(leaf, role, inside, notes)
            if leaf.count != 0:
                found.extend(_led(leaf, role.children.lead, inside))
        inner = replace(part, is_inner=True, metadata=(), template=None)
        return [inner, *found] if found else []

    def _filled(
        self, part: PlannedSubGroup, role: Role, scope: dict[str, Any], notes: Notes
    ) -> PlannedSubGroup:
        """Return `part` with its labels and counts."""
        templates = role.pods if role.children is None else role.children.pods
        labels = {key: fill(text, scope) for key, text in templates.items()}
        inside = self._scope(scope, labels, role.owner)
        times = _count(role.times, inside)
        count: int | None = None
        least = 1
        try:
            count = _count(role.count, inside) if role.count else None
            least = _count(role.min or role.left or role.count or _ONE, inside)
        except PathError as error:
            self._add(notes, error)
        count = None if count is None else count * times
        return replace(part, labels=labels, count=count, least=least * times)

    def _scope(
        self, scope: Mapping[str, Any], labels: Mapping[str, str], kind: str | None
    ) -> dict[str, Any]:
        """Return `scope` with what is known of the pods with `labels`."""
        chains = self._observed.having(labels)
        succeeded = sum(chain.pod.phase == "Succeeded" for chain in chains)
        return {"_root": self._item, **scope, "_succeeded": succeeded, "_owner": _own(chains, kind)}

    def _add(self, notes: Notes, error: PathError) -> None:
        message = f"the row of {self._row.kind}: {error}"
        notes.add(self._at, ProblemReason.PATH_NOT_FOUND, message)


def own_links(chain: Chain, kind: str | None) -> tuple[Link, ...]:
    """Return the links of `chain` that only pods of its part have: the pod and its own owner."""
    own = (link for link in chain.links[1:] if kind is not None and link.reference.kind == kind)
    return (chain.links[0], *own)


def _own(chains: Sequence[Chain], kind: str | None) -> KubeObject | None:
    """Return the object that makes the pods, seen from the newest of them."""
    own = own_links(chains[-1], kind)[1:] if chains else ()
    return own[0].item if own else None


def _led(
    leaf: PlannedSubGroup, lead: Lead | None, scope: Mapping[str, Any]
) -> Iterator[PlannedSubGroup]:
    """Yield `leaf`; or, if its first pod comes first, a part for that pod and one for the rest."""
    if lead is None or leaf.count is None or leaf.count < 2 or not find(lead.when, scope):
        yield leaf
        return
    first, rest = f"{leaf.name}.first", f"{leaf.name}.rest"
    domain = _domain(lead.domain, scope)
    yield replace(leaf, is_inner=True, labels={}, metadata=(), template=None, constraint=domain)
    labels = {**leaf.labels, lead.label: _FIRST}
    least = min(1, leaf.least)
    yield replace(leaf, name=first, parent=leaf.name, labels=labels, count=1, least=least)
    after = (Dependency(sub_group=first, condition=lead.condition.value),)
    count, least = leaf.count - 1, leaf.least - least
    yield replace(leaf, name=rest, parent=leaf.name, count=count, least=least, after=after)


def _domain(path: str | None, scope: Mapping[str, Any]) -> TopologyConstraint | None:
    label = None if path is None else find(path, scope)
    return TopologyConstraint(required=label) if isinstance(label, str) and label else None


def _dependencies(
    stages: Sequence[After], scope: dict[str, Any], before: Sequence[PlannedSubGroup]
) -> Iterator[Dependency]:
    for stage in stages:
        if stage.when is not None and not find(stage.when, scope):
            continue
        items = [scope] if stage.each is None else entries(stage.each, scope)
        for item in items:
            condition = _condition(stage, item)
            if stage.role is not None:
                names = [fill(stage.role, item)]
            else:
                names = [part.name for part in before if part.parent is None]
            for name in names:
                yield Dependency(sub_group=name, condition=condition)


def _condition(stage: After, item: object) -> StageName:
    text = fill(stage.condition, item)
    try:
        return StageCondition(text).value
    except ValueError as error:
        raise PathError(f"{text!r} is not a condition of a stage") from error


def _linked(parts: Sequence[PlannedSubGroup]) -> Iterator[PlannedSubGroup]:
    """Yield `parts` with the parents that hold them, and without dependencies on missing roles."""
    names = {part.name for part in parts}
    parents = {held: part.name for part in parts for held in part.holds}
    empty = {part.name for part in parts if part.holds and names.isdisjoint(part.holds)}
    for part in parts:
        if part.name in empty:
            continue
        known = tuple(each for each in part.after if each.sub_group in names)
        parent = part.parent or parents.get(part.name)
        yield replace(part, after=known, parent=parent)


def _template(path: str | None, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = None if path is None else find(path, scope)
    return mapping(found) or None


def _count(paths: Paths, scope: Mapping[str, Any]) -> int:
    """Return the number that the first of `paths` leads to.

    Raises:
        PathError: none leads to a number.
    """
    for path in paths:
        found = number(find(path, scope))
        if found is not None:
            return found
    raise PathError(f"nothing is at {', '.join(paths)}")
