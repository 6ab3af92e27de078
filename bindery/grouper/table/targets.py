"""Finds the object whose pods are one group: where the walk ends, and what a group is per."""

from dataclasses import dataclass, replace
from typing import Final

from bindery.grouper.table import settings
from bindery.grouper.table.groups import Problem, ProblemReason, WantedObject
from bindery.grouper.table.loading import Table
from bindery.grouper.table.rows import Match, PassTo, PassToObject, Row
from bindery.grouper.table.steps import Notes, Step
from bindery.grouper.table.walk import Chain, Link, Owners, link_of

DEFAULT_ROW: Final = Row(match=Match(group="*", kind="*"), min=("`1`",))
"""For kinds without a row, and owners that cannot be read: one group, minimum 1."""


@dataclass(frozen=True)
class Target:
    """The object that a group comes from, seen from one of its pods."""

    link: Link
    row: Row
    above: tuple[Link, ...] = ()
    """The owners whose labels and annotations count for the whole group, after those of `link`."""
    value: str = ""
    """With `per: {label}`: the value of the label."""
    label: str = ""
    """The label with that value, of the pods."""
    is_pod: bool = False
    """Whether each pod is independent; `link` is then its controller, or the pod itself."""

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels that select the pods of the group among those of their controllers."""
        return {self.label: self.value} if self.value else {}

    @property
    def part(self) -> str:
        """The value, if the object has several groups with different values."""
        return "" if self.value == self.link.reference.name else self.value

    @property
    def key(self) -> tuple[str, str]:
        """The value that distinguishes groups."""
        return self.link.reference.uid, self.value


@dataclass(frozen=True)
class Finder:
    """Finds targets in one table."""

    table: Table
    owners: Owners

    def target(self, chain: Chain) -> Step[Target | WantedObject]:
        """Return the target of the pod of `chain`, or the object that must be read first.

        The pods of a skipped owner are independent. Such pods still need a PodGroup, as the
        scheduler does not see their owner and may wait for a PodGroup.
        """
        notes, links, position = Notes(), chain.links, len(chain.links) - 1
        if any(settings.is_skipped(link) for link in links[1:]):
            return Step(Target(links[1], self._row(links[1]), links[2:], is_pod=True))
        while True:
            row = self._row(links[position])
            known = self._known_below(links, position) if row is DEFAULT_ROW else 0
            if known:
                result = f"each {links[known].reference.kind} below it is grouped by itself"
                notes.problems.add(_no_row(links[position], result, "makes them one group"))
                position = known
                continue
            passing = row.pass_to
            if passing is None or position == 0:
                above = links[position + 1 :]
                return notes.step(notes.take(self._per(chain, links[position], row, above)))
            if passing.object is not None:
                above = links[position:]
                return notes.step(notes.take(self._named(chain, passing.object, above)))
            position = _below(links, position, passing)

    def _known_below(self, links: tuple[Link, ...], position: int) -> int:
        """Return the position of the highest owner with a row below a kind without one; 0 if none.

        What asks for a minimum is a gang itself, whatever it consists of.
        """
        if settings.look_up(settings.MIN_MEMBER, links[position : position + 1]).value:
            return 0
        below = range(position - 1, 0, -1)
        return next((each for each in below if self._row(links[each]) is not DEFAULT_ROW), 0)

    def _row(self, link: Link) -> Row:
        if not link.is_readable:
            return DEFAULT_ROW
        at = link.reference
        return self.table.row(at.group, at.version, at.kind, link.labels) or DEFAULT_ROW

    def _named(
        self, chain: Chain, wanted: PassToObject, above: tuple[Link, ...]
    ) -> Step[Target | WantedObject]:
        """Return the target for the object that a label of the pod names."""
        namespace, name = chain.pod.namespace, chain.pod.labels.get(wanted.label)
        if not name:
            problem = _no_label(above[0], chain, wanted.label)
            return Step(Target(above[0], DEFAULT_ROW, above[1:]), frozenset({problem}))
        item = self.owners.named(wanted.group, wanted.kind, namespace, name)
        if item is None:
            versions = wanted.versions
            return Step(WantedObject(wanted.group, wanted.kind, namespace, name, versions=versions))
        found, notes = link_of(item), Notes()
        target = notes.take(self._per(chain, found, self._row(found), above))
        return notes.step(replace(target, value=name, label=wanted.label))

    def _per(self, chain: Chain, link: Link, row: Row, above: tuple[Link, ...]) -> Step[Target]:
        problems: frozenset[Problem] = frozenset()
        if row.per is None:
            if row is DEFAULT_ROW and link.is_readable:
                result = "its pods are one group with minimum 1"
                problems = frozenset({_no_row(link, result, "changes that")})
            return Step(Target(link, row, above), problems)
        if row.per.pod:
            return self._per_pod(chain, row)
        label = row.per.label or ""
        value = chain.pod.labels.get(label, "")
        if not value:
            problems = frozenset({_no_label(link, chain, label)})
        return Step(Target(link, row, above, value, label), problems)

    def _per_pod(self, chain: Chain, row: Row) -> Step[Target]:
        """Return the controller of the pod: a gang if a minimum is asked for."""
        notes = Notes()
        asked = notes.take(settings.look_up(settings.MIN_MEMBER, chain.links))
        if len(chain.links) == 1:
            return notes.step(Target(chain.links[0], row, is_pod=True))
        link = chain.links[1]
        return notes.step(Target(link, self._row(link), chain.links[2:], is_pod=asked is None))


def _no_label(link: Link, chain: Chain, label: str) -> Problem:
    message = f"the pod {chain.pod.name} has no label {label}"
    return Problem(link.reference, ProblemReason.PATH_NOT_FOUND, message)


def _no_row(link: Link, result: str, otherwise: str) -> Problem:
    at = link.reference
    kind = f"{at.kind}.{at.group}" if at.group else at.kind
    message = (
        f"there is no row for {kind}: {result}; the annotation "
        f"{settings.MIN_MEMBER.keys[0]} or a row of your own {otherwise}"
    )
    return Problem(at, ProblemReason.UNKNOWN_KIND, message)


def _below(links: tuple[Link, ...], position: int, passing: PassTo) -> int:
    """Return the position that `passing` leads to, at least one further down."""
    if passing.pod:
        return 0
    if passing.kind is not None:
        for below in range(position - 1, 0, -1):
            if links[below].reference.kind == passing.kind:
                return below
    return position - 1
