"""The domain of each of some pods of a job, chosen by sums before any pod is placed.

The solver and reservations place pods one by one, with evictions in between, so they choose all
domains first: that of the whole gang, and inside it one for each constrained sub-group. The sums
are upper bounds, so the caller tries several choices.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.domains import EVERYWHERE, Domain, DomainAsk, Freeable, rows_beside
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.packing import Item, pack
from bindery.scheduler.model.parts import IsMember, split
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class PodDomains:
    """The domains of some pods of one job."""

    whole: Domain = EVERYWHERE
    """The domain of the pods without a narrower one."""
    narrower: Mapping[Uid, Domain] = field(default_factory=dict)
    """Pod -> the domain of its sub-group."""
    rank: int = 0
    """Sum of the ranks of the domains: the lower, the closer are the pods."""

    @property
    def exclusive_nodes(self) -> list[BoolColumn]:
        """The masks over node rows of the domains that others must stay out of."""
        domains = {id(each): each for each in (self.whole, *self.narrower.values())}.values()
        return [each.closes for each in domains if each.closes is not None]

    @property
    def going(self) -> frozenset[Uid]:
        """The pods of others that must go before the domains can be used."""
        return self.whole.going.union(*(each.going for each in self.narrower.values()))

    def beside_pods(self, session: Session, job: Job, tasks: Iterable[Task]) -> IntColumns | None:
        """Return what `job` holds beside `tasks` in exclusive domains that it does not have yet.

        [resource]; None without such a domain.
        """
        own = session.calls.held_domains().get(job.key)
        new = np.zeros(len(session.state.nodes.nodes), dtype=np.bool_)
        for rows in self.exclusive_nodes:
            new |= rows if own is None else rows & ~own
        if not new.any():
            return None
        domains = ((task, self.of(task).closes) for task in tasks)
        inside = (task for task, rows in domains if rows is not None and (rows & new).any())
        return session.account.beside(new, inside)

    def of(self, task: Task) -> Domain:
        """Return the domain of `task`."""
        return self.narrower.get(task.uid, self.whole)


ANYWHERE = PodDomains()
"""The domains of pods without a constraint."""


class DomainFinders:
    """The finders of places for the pods of `job` in `domains`; one for each domain."""

    def __init__(self, session: Session, job: Job, domains: PodDomains) -> None:
        self._session = session
        self._job = job
        self._domains = domains
        self._finders: dict[int, JobFinder] = {}

    def of(self, task: Task) -> JobFinder:
        """Return the finder for `task`, which equal pods of its domain share."""
        domain = self._domains.of(task)
        finder = self._finders.get(id(domain))
        if finder is None:
            finder = self._finders[id(domain)] = self.new(task)
        return finder

    def new(self, task: Task) -> JobFinder:
        """Return another finder for `task`, which may exclude nodes for it alone."""
        return self._session.placement.finder(self._job, self._domains.of(task))


def pod_domains(
    session: Session,
    job: Job,
    tasks: Sequence[Task],
    *,
    freeable: Freeable | None = None,
    is_widest_only: bool = False,
    within: Domain | None = None,
) -> Iterator[PodDomains]:
    """Yield choices of domains for `tasks` of `job`, best first; none if no domain has room.

    `freeable` and `is_widest_only`: see `DomainAsk`. `within`: the domain around all choices; None
    for the domains that plugins offer for the job.
    """
    chooser = _Chooser(session, job, freeable, is_widest_only=is_widest_only)
    groups = _groups(job, tasks)

    def in_job(task: Task) -> bool:
        return task.job == job.key

    around = (
        session.calls.job_domains(job, lambda: tasks, freeable) if within is None else (within,)
    )
    for outer in around:
        for whole in chooser.domains(job.topology, tasks, in_job, outer, None):
            if groups:
                yield from chooser.narrowed(whole, groups)
            else:
                yield PodDomains(whole, rank=whole.rank)


def pod_without_domain(
    tasks: Sequence[Task], choices: Callable[[Sequence[Task]], Iterable[PodDomains]]
) -> Task | None:
    """Return the first of `tasks` with which no domains have room; None if all have room.

    `choices`: returns the choices of domains for some of the pods.
    """

    def has_none(count: int) -> bool:
        return next(iter(choices(tasks[:count])), None) is None

    counts = range(1, len(tasks) + 1)
    at = bisect_left(counts, True, key=has_none)
    return tasks[at] if at < len(tasks) else None


@dataclass(frozen=True, slots=True)
class _Group:
    """A constrained sub-group, segment or unit, and its pods."""

    is_member: IsMember
    constraint: Constraint
    tasks: Sequence[Task]
    inside: int | None
    """Position of the constrained group around it; None for the whole gang."""


def _groups(job: Job, tasks: Sequence[Task]) -> list[_Group]:
    """Return the constrained parts of `tasks`, each after the one around it."""
    if not job.is_constrained:
        return []
    found: list[_Group] = []
    around: dict[Uid, int] = {}
    of_leaf: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        of_leaf.setdefault(task.sub_group, []).append(position)
    for group in job.tree.all_groups() if job.tree is not None else ():
        if group.topology is not None and group.topology.limits:
            leaves = frozenset(leaf.name for leaf in group.leaves())
            positions = sorted(at for name in leaves for at in of_leaf.get(name, ()))
            members = [tasks[at] for at in positions]
            _add(_Group(_in_leaves(job, leaves), group.topology, members, None), found, around)
    for part in split(job, tasks):
        if part.constraint is not None:
            _add(_Group(part.is_member, part.constraint, part.tasks, None), found, around)
    return found


def _in_leaves(job: Job, leaves: frozenset[str]) -> IsMember:
    return lambda task: task.job == job.key and task.sub_group in leaves


def _add(group: _Group, found: list[_Group], around: dict[Uid, int]) -> None:
    """Add `group` to `found`, inside the one around it, unless it is empty."""
    if group.tasks:
        inside = around.get(group.tasks[0].uid)
        around |= dict.fromkeys((task.uid for task in group.tasks), len(found))
        found.append(replace(group, inside=inside))


class _Chooser:
    """Chooses domains for parts of a gang, one after the other."""

    def __init__(
        self,
        session: Session,
        job: Job,
        freeable: Freeable | None,
        *,
        is_widest_only: bool,
    ) -> None:
        self._session = session
        self._job = job
        self._freeable = freeable
        self._is_widest_only = is_widest_only

    def domains(
        self,
        constraint: Constraint | None,
        tasks: Sequence[Task],
        is_member: IsMember,
        within: Domain,
        taken: IntColumns | None,
    ) -> Iterator[Domain]:
        """Yield the domains for `tasks`, members of a group, inside `within`.

        `taken`: room that other parts need [resource, node].
        """
        if constraint is None or not constraint.limits:
            yield within
            return
        tied = within.of_shapes
        ask = DomainAsk(
            job=self._job,
            constraint=constraint,
            tasks=tasks,
            beside=rows_beside(self._job, tasks, is_member),
            is_member=is_member,
            within=within.nodes,
            freeable=self._freeable,
            taken=taken,
            is_widest_only=self._is_widest_only,
        )
        for found in self._session.calls.group_domains(ask):
            yield replace(found, of_shapes=tied) if tied else found

    def narrowed(self, whole: Domain, parts: Sequence[_Group]) -> Iterator[PodDomains]:
        """Yield choices inside `whole`: one for each domain of the first of `parts`.

        The other parts take their first domain with the room that is left.
        """
        first = parts[0]
        for domain in self.domains(first.constraint, first.tasks, first.is_member, whole, None):
            chosen = self._rest(whole, domain, parts)
            if chosen is not None:
                narrower = {
                    task.uid: found
                    for part, found in zip(parts, chosen, strict=True)
                    for task in part.tasks
                }
                yield PodDomains(whole, narrower, whole.rank + sum(each.rank for each in chosen))

    def _rest(self, whole: Domain, first: Domain, parts: Sequence[_Group]) -> list[Domain] | None:
        nodes = self._session.state.nodes
        taken = np.zeros_like(nodes.idle)
        chosen = [first]
        self._take(parts[0].tasks, first, taken)
        for part in parts[1:]:
            # What is inside another part uses the room that the other part takes.
            within = whole if part.inside is None else chosen[part.inside]
            others = taken if part.inside is None else None
            found = next(
                self.domains(part.constraint, part.tasks, part.is_member, within, others), None
            )
            if found is None:
                return None
            chosen.append(found)
            if part.inside is None:
                self._take(part.tasks, found, taken)
        return chosen

    def _take(self, tasks: Sequence[Task], domain: Domain, taken: IntColumns) -> None:
        """Add to `taken` what `tasks` need in `domain`, as far as they can be packed."""
        nodes = self._session.state.nodes
        room = nodes.idle + nodes.releasing - nodes.pipelined - taken
        if self._freeable is not None:
            room = room + self._freeable.room
        items = []
        for task in tasks:
            open_rows = self._session.placement.passing(task.shape)
            if domain.nodes is not None:
                open_rows = open_rows & domain.nodes
            rows = self._session.order[open_rows[self._session.order]]
            items.append(Item(task.shape.request, rows))
        for task, row in zip(tasks, pack(items, room) or (), strict=False):
            taken[list(task.shape.request.indices), row] += task.shape.request.amounts
