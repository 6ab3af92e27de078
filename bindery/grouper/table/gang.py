"""One object whose pods run together: its parts, and the labels and annotations for each part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from bindery.grouper.table.facts import KubeObject, Reference
from bindery.grouper.table.parts import Filler, Observed, PlannedSubGroup, own_links
from bindery.grouper.table.rows import Row
from bindery.grouper.table.steps import Step, find_first, number
from bindery.grouper.table.targets import Target
from bindery.grouper.table.walk import Chain, Link


@dataclass(frozen=True)
class ObjectGang:
    """The facts about the object. Each step of `assembly` reads them."""

    target: Target
    chains: Sequence[Chain]
    """The chains of all pods, the oldest first."""
    parts: Sequence[PlannedSubGroup]
    """The parts that the row defines, without the changes of later steps."""
    total: int | None
    """The minimum of the object by its row; None if the row finds none."""
    by_part: Mapping[str, Sequence[Chain]]
    """The chains of the pods of each part; a pod that several parts select is in the first."""
    shared: frozenset[str]
    """The roles with the template of another role, which thus identifies neither."""

    @property
    def at(self) -> Reference:
        """The reference to the object."""
        return self.target.link.reference

    @property
    def row(self) -> Row:
        """The row of the object's kind."""
        return self.target.row

    @property
    def item(self) -> KubeObject:
        """The object; empty if it was not given."""
        return self.target.link.item or {}

    @property
    def has_roles(self) -> bool:
        """Whether the parts are roles; else the only part is the whole gang."""
        return bool(self.parts[0].name)

    def first_number(self, paths: Sequence[str]) -> Step[int | None]:
        """Return the first number in the object that `paths` lead to."""
        return find_first(self.at, paths, self.item, number)

    def is_true(self, path: str) -> Step[bool | None]:
        """Return whether `path` leads to something true in the object."""
        return find_first(self.at, (path,), self.item, bool)

    def own(self, part: PlannedSubGroup) -> tuple[Link, ...]:
        """Return the labels and annotations of the pods of `part` alone, nearest first."""
        if not self.has_roles or part.role in self.shared:
            return ()
        chains = self.by_part.get(part.name)
        return own_links(chains[-1], part.own_kind) if chains else part.metadata

    def common(self) -> tuple[Link, ...]:
        """Return the labels and annotations for the whole gang, nearest to the pod first."""
        newest = self.chains[-1]
        whole = (self.target.link, *self.target.above)
        if not self.has_roles:
            return (*self._below(newest), *whole)
        return (newest.links[0], *whole) if self.shared else whole

    def nearest(self, part: PlannedSubGroup) -> tuple[Link, ...]:
        """Return all labels and annotations that count for pods of `part`, nearest first."""
        own, chains = self.own(part), self.by_part[part.name]
        if not self.has_roles or not chains:
            return (*own, *self.common())
        between = [
            link
            for link in self._below(chains[-1])[1:]
            if all(link is not each for each in own) and not link.is_pod
        ]
        return (*own, *between, *self.common())

    def _below(self, chain: Chain) -> tuple[Link, ...]:
        """Return the links of `chain` below the object."""
        ends = {link.reference.uid for link in (self.target.link, *self.target.above)}
        return tuple(takewhile(lambda link: link.reference.uid not in ends, chain.links))


def gang_of(target: Target, chains: Sequence[Chain]) -> Step[ObjectGang]:
    """Return the gang of the object of `target`. `chains`: of its pods, the oldest first."""
    observed = Observed(chains)
    filler = Filler(target.row, target.link, observed)
    filled = filler.parts()
    by_part: dict[str, list[Chain]] = {part.name: [] for part in filled.value}
    templates: dict[int, set[str]] = {}
    seen: set[str] = set()
    for part in filled.value:
        if part.template is not None:
            templates.setdefault(id(part.template), set()).add(part.role)
        if not part.is_inner:
            fresh = [c for c in observed.having(part.labels) if c.pod.uid not in seen]
            by_part[part.name] = fresh
            seen.update(chain.pod.uid for chain in fresh)
    shared = frozenset(role for roles in templates.values() if len(roles) > 1 for role in roles)
    gang = ObjectGang(target, chains, filled.value, filler.total(), by_part, shared)
    return Step(gang, filled.problems)
