"""The domain of each of some pods of a job, chosen by sums before any pod is placed.

The solver and reservations place pods one by one, with evictions in between, so they choose all
domains first: that of the whole gang, and inside it one for each constrained sub-group. The sums
are upper bounds, so the caller tries several choices.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        exclusive = self.exclusive_nodes
        if not exclusive:  # nearly all gangs
            return None
        own = session.calls.held_domains().get(job.key)
        new = np.zeros(len(session.state.nodes.nodes), dtype=np.bool_)
        for rows in exclusive:
            new |= rows if own is None else rows & ~own
        if not new.any():
            return None
        domains = ((task, self.of(task).closes) for task in tasks)
        inside = (task for task, rows in domains if rows is not None and (rows & new).any())
        return session.account.beside(new, inside)

    def of(self, task: Task) -> Domain:
        """Return the domain of `task`."""
        return self.narrower.get(task.uid, self.whole)


_MOST_ASKED = 256
"""For how many groups domains are asked inside one domain of the gang."""
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


@dataclass(frozen=True, slots=True)
class _Group:
    """A constrained sub-group, segment or unit, and its pods."""

    is_member: IsMember
    constraint: Constraint | None
    tasks: Sequence[Task]
    inside: int | None = None
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
            _add(_Group(_in_leaves(job, leaves), group.topology, members), found, around)
    for part in split(job, tasks):
        if part.constraint is not None:
            _add(_Group(part.is_member, part.constraint, part.tasks), found, around)
    return found


def _in_leaves(job: Job, leaves: frozenset[str]) -> IsMember:
    return lambda task: task.job == job.key and task.sub_group in leaves


def _add(group: _Group, found: list[_Group], around: dict[Uid, int]) -> None:
    """Add `group` to `found`, inside the one around it, unless it is empty."""
    if group.tasks:
        inside = around.get(group.tasks[0].uid)
        around |= dict.fromkeys((task.uid for task in group.tasks), len(found))
        found.append(replace(group, inside=inside))


def need_domains(session: Session, job: Job, tasks: Sequence[Task]) -> bool:
    """Return whether a rule keeps `tasks` of `job` together."""
    return job.is_constrained or session.calls.are_tied(job, lambda: tasks)


class DomainChoices:
    """The choices of domains for pods of `job`, best first, by sums of room.

    `freeable` and `is_widest_only`: see `DomainAsk`.
    """

    def __init__(
        self,
        session: Session,
        job: Job,
        freeable: Freeable | None = None,
        *,
        is_widest_only: bool = False,
    ) -> None:
        self._session = session
        self._job = job
        self._freeable = freeable
        self._is_widest_only = is_widest_only
        self.unmet: DomainAsk | None = None
        """The last pods for which no domain had room beside the others; None if there were none."""
        self._rejected: Task | None = None

    def of(self, tasks: Sequence[Task]) -> Iterator[PodDomains]:
        """Yield choices for `tasks`; none if no domain has room."""
        job = self._job
        if not need_domains(self._session, job, tasks):
            yield ANYWHERE
            return
        groups = _groups(job, tasks)
        whole_gang = _Group(lambda task: task.job == job.key, job.topology, tasks)
        for outer in self._session.calls.job_domains(job, lambda: tasks, self._freeable):
            for whole in self._domains(whole_gang, outer, None):
                if groups:
                    yield from self._narrowed(whole, groups)
                else:
                    yield PodDomains(whole, rank=whole.rank)

    def reject(self, task: Task) -> None:
        """Skip the choices that differ from the last one only beside the domain of `task`.

        It had no place in that domain, whatever the domains of the groups after its own are.
        """
        self._rejected = task

    def lost(self, tasks: Sequence[Task]) -> Task | None:
        """Return the first of `tasks` with which no domains have room; None if all have room."""

        def has_none(count: int) -> bool:
            return next(self.of(tasks[:count]), None) is None

        counts = range(1, len(tasks) + 1)
        at = bisect_left(counts, True, key=has_none)
        return tasks[at] if at < len(tasks) else None

    def _domains(self, group: _Group, within: Domain, taken: IntColumns | None) -> Iterator[Domain]:
        """Yield the domains for `group` inside `within`.

        `taken`: room that other groups need [resource, node].
        """
        if group.constraint is None or not group.constraint.limits:
            yield within
            return
        tied = within.of_shapes
        ask = DomainAsk(
            job=self._job,
            constraint=group.constraint,
            tasks=group.tasks,
            beside=rows_beside(self._job, group.tasks, group.is_member),
            is_member=group.is_member,
            within=within.nodes,
            freeable=self._freeable,
            taken=taken,
            is_widest_only=self._is_widest_only,
        )
        # The others may be placed elsewhere than they are packed, so all domains come at last.
        asks = (ask,) if taken is None else (ask, replace(ask, taken=None))
        for each in asks:
            is_unmet = True
            for found in self._session.calls.group_domains(each):
                is_unmet = False
                yield replace(found, of_shapes=tied) if tied else found
            if not is_unmet:
                return
            self.unmet = ask

    def _narrowed(self, whole: Domain, groups: Sequence[_Group]) -> Iterator[PodDomains]:
        """Yield choices inside `whole`: a search in depth over the domains of `groups`, in order.

        Each group takes its domains with the room that the groups before it leave.
        """
        taken = _Taken(self._session, self._freeable)
        chosen: list[Domain] = []
        open_: list[Iterator[Domain]] = [self._domains(groups[0], whole, None)]
        asked = 0
        while open_ and asked < _MOST_ASKED:
            domain = next(open_[-1], None)
            if domain is None:
                open_.pop()
                if chosen:
                    chosen.pop()
                    taken.give_back()
                continue
            if len(chosen) + 1 == len(groups):
                yield _chosen(whole, groups, (*chosen, domain))
                level = self._level_rejected(groups)
                while len(open_) > level + 1:
                    open_.pop()
                    if chosen:
                        chosen.pop()
                        taken.give_back()
                continue
            group = groups[len(chosen)]
            chosen.append(domain)
            taken.take(group, domain)
            after = groups[len(chosen)]
            within = whole if after.inside is None else chosen[after.inside]
            open_.append(self._domains(after, within, taken.beside(after)))
            asked += 1

    def _level_rejected(self, groups: Sequence[_Group]) -> int:
        """Return the position of the group whose domain must change next; -1 for that of all."""
        task, self._rejected = self._rejected, None
        if task is None:
            return len(groups) - 1
        inside = (at for at in reversed(range(len(groups))) if task in groups[at].tasks)
        return next(inside, -1)


def _chosen(whole: Domain, groups: Sequence[_Group], domains: Sequence[Domain]) -> PodDomains:
    narrower = {
        task.uid: domain
        for group, domain in zip(groups, domains, strict=True)
        for task in group.tasks
    }
    return PodDomains(whole, narrower, whole.rank + sum(domain.rank for domain in domains))


class _Taken:
    """The room that groups with a domain need, as far as their pods can be packed there."""

    def __init__(self, session: Session, freeable: Freeable | None) -> None:
        self._session = session
        self._freeable = freeable
        self._sums: dict[int | None, IntColumns] = {}
        """Position of the group around them -> what groups need together [resource, node]."""
        self._log: list[tuple[int | None, list[tuple[Task, int]]]] = []

    def beside(self, group: _Group) -> IntColumns | None:
        """Return what the groups beside `group` need; None if nothing."""
        return self._sums.get(group.inside)

    def take(self, group: _Group, domain: Domain) -> None:
        """Add what the pods of `group` need in `domain`."""
        nodes = self._session.state.nodes
        before = self._sums.get(group.inside)
        if before is None:
            before = self._sums[group.inside] = np.zeros_like(nodes.idle)
        room = nodes.idle + nodes.releasing - nodes.pipelined - before
        if self._freeable is not None:
            room = room + self._freeable.room
        items = []
        for task in group.tasks:
            open_rows = self._session.placement.passing(task.shape)
            if domain.nodes is not None:
                open_rows = open_rows & domain.nodes
            rows = self._session.order[open_rows[self._session.order]]
            items.append(Item(task.shape.request, rows))
        placed = list(zip(group.tasks, pack(items, room) or (), strict=False))
        self._log.append((group.inside, placed))
        self._add(group.inside, placed, 1)

    def give_back(self) -> None:
        """Undo the last `take`."""
        inside, placed = self._log.pop()
        self._add(inside, placed, -1)

    def _add(self, inside: int | None, placed: Sequence[tuple[Task, int]], sign: int) -> None:
        taken = self._sums[inside]
        for task, row in placed:
            request = task.shape.request
            taken[list(request.indices), row] += sign * np.array(request.amounts)
