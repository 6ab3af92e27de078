"""Makes the PodGroups of one target from its row, its object and its pods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from bindery.api import names
from bindery.api.states import MOST_GANG_PODS, MOST_SUB_GROUPS
from bindery.grouper.table import settings
from bindery.grouper.table.asked import Asked, Asker, Surroundings, digest, name_of
from bindery.grouper.table.cutting import MOST_IN_ORDER, into_order, into_segments
from bindery.grouper.table.groups import Group, Problem, ProblemReason
from bindery.grouper.table.parts import Filler, Observed, PlannedSubGroup, own_links
from bindery.grouper.table.paths import PathError, find, integer
from bindery.grouper.table.places import FoundConstraint, Reader
from bindery.grouper.table.settings import Found
from bindery.grouper.table.targets import Target
from bindery.grouper.table.templates import scheduling_part
from bindery.grouper.table.walk import Chain, Link
from bindery.kube.objects.podgroups import Member, PodGroupSpec, SubGroup

_MOST_SEGMENTS = MOST_SUB_GROUPS // 4
"""How many segments a gang is cut into: each takes a sub-group, and one for each role in it."""


@dataclass(frozen=True)
class Independent:
    """Pods of one controller that are independent of each other."""

    target: Target
    chains: Sequence[Chain]
    asker: Asker

    def groups(self) -> Iterator[Group]:
        """Yield a PodGroup; several if the pods ask for different queues or priorities."""
        found: dict[tuple[Any, ...], list[tuple[Chain, Asked]]] = {}
        for chain in self.chains:
            asked = self._asked(chain)
            found.setdefault(asked.key, []).append((chain, asked))
        for index, pods in enumerate(found.values()):  # the oldest pod has the plain name
            group = self._group(pods, is_alone=len(found) == 1, is_first=index == 0)
            if group is not None:
                yield group

    def _asked(self, chain: Chain) -> Asked:
        found = self.asker.asked(chain.links)
        return self.asker.completed(
            found,
            self.target.row,
            self.target.link,
            pods_have_class=bool(chain.pod.priority_class),
        )

    def _group(
        self, pods: Sequence[tuple[Chain, Asked]], *, is_alone: bool, is_first: bool
    ) -> Group | None:
        chain, asked = pods[0]
        at, uids = self.target.link.reference, tuple(sorted(each.pod.uid for each, _ in pods))
        controller = chain.pod.controller
        if controller is None and _is_read_by_scheduler(chain, asked):
            return None  # a pod alone is a gang of one without a PodGroup
        if controller is not None and is_alone:
            members = [Member(controller=controller.uid)]
        else:
            members = [Member(pod=uid) for uid in uids]
        return Group(
            namespace=chain.pod.namespace,
            name=name_of(at, "" if is_first else digest(asked.key)),
            owner=at,
            spec=PodGroupSpec(min_member=0, members=members, **asked.to_spec()),
            sources=asked.sources(),
            labels=asked.labels(),
            annotations=asked.annotations(),
            pods=uids,
        )


class ObjectGang:
    """Pods of one object that run together."""

    def __init__(
        self, target: Target, chains: Sequence[Chain], asker: Asker, problems: set[Problem]
    ) -> None:
        """`chains`: of the pods, the oldest first."""
        self._target, self._row, self._at = target, target.row, target.link.reference
        self._chains, self._asker, self._problems = chains, asker, problems
        self._observed = Observed(chains)
        self._item = target.link.item or {}
        self._sources: dict[str, str] = {}

    def group(self) -> Group:
        """Return the PodGroup."""
        parts = self._with_own_minimums(self._parts)
        total, parts = self._with_total(parts)
        parts = self._bounded(parts)
        asked = self._asked()
        self._sources |= asked.sources()
        spec: dict[str, Any] = asked.to_spec()
        parts = self._in_order(total, parts)
        cut = self._in_segments(parts)
        spec |= self._minimum(total, cut or parts)
        parts = cut or parts
        sub_groups = list(self._sub_groups(parts)) if parts[0].name else []
        constraint = self._place.constraint(segments=self._segmented_role is None and not cut)
        if constraint is not None:
            spec["topology"] = constraint
            self._sources["topology"] = self._place.source
        return Group(
            namespace=self._chains[0].pod.namespace,
            name=name_of(self._at, self._target.part),
            owner=self._at,
            spec=PodGroupSpec(sub_groups=sub_groups, members=self._members(), **spec),
            sources=self._sources,
            labels=asked.labels(),
            annotations=asked.annotations(),
            pods=tuple(sorted(chain.pod.uid for chain in self._chains)),
        )

    @cached_property
    def _filler(self) -> Filler:
        return Filler(self._row, self._target.link, self._observed, self._problems)

    @cached_property
    def _parts(self) -> tuple[PlannedSubGroup, ...]:
        return self._filler.parts()

    @cached_property
    def _by_part(self) -> dict[str, list[Chain]]:
        """The chains of the pods of each part; of several that match, the first has a pod."""
        found: dict[str, list[Chain]] = {part.name: [] for part in self._parts}
        seen: set[str] = set()
        for part in self._parts:
            if not part.is_inner:
                fresh = [c for c in self._observed.having(part.labels) if c.pod.uid not in seen]
                found[part.name] = fresh
                seen.update(chain.pod.uid for chain in fresh)
        return found

    @property
    def _has_roles(self) -> bool:
        """Whether the group has parts; else its only part is the whole."""
        return bool(self._parts[0].name)

    @cached_property
    def _shared(self) -> frozenset[str]:
        """The roles whose template another role has too, so that it identifies neither."""
        templates: dict[int, set[str]] = {}
        for part in self._parts:
            if part.template is not None:
                templates.setdefault(id(part.template), set()).add(part.role)
        return frozenset(role for roles in templates.values() if len(roles) > 1 for role in roles)

    def _own(self, part: PlannedSubGroup) -> tuple[Link, ...]:
        """Return the labels and annotations that only pods of `part` have, nearest first."""
        if not self._has_roles or part.role in self._shared:
            return ()
        chains = self._by_part.get(part.name)
        return own_links(chains[-1], part.own_kind) if chains else part.metadata

    @cached_property
    def _common(self) -> tuple[Link, ...]:
        """The labels and annotations that count for the whole group, nearest to the pod first."""
        newest = self._chains[-1]
        whole = (self._target.link, *self._target.above)
        if not self._has_roles:
            return (*self._below(newest), *whole)
        return (newest.links[0], *whole) if self._shared else whole

    def _below(self, chain: Chain) -> tuple[Link, ...]:
        """Return the links of `chain` below the object that the group comes from."""
        ends = {link.reference.uid for link in (self._target.link, *self._target.above)}
        return tuple(takewhile(lambda link: link.reference.uid not in ends, chain.links))

    def _nearest(self, part: PlannedSubGroup) -> tuple[Link, ...]:
        """Return all labels and annotations that pods of `part` have, nearest first."""
        own, chains = self._own(part), self._by_part[part.name]
        if not self._has_roles or not chains:
            return (*own, *self._common)
        between = [
            link
            for link in self._below(chains[-1])[1:]
            if all(link is not each for each in own) and not link.is_pod
        ]
        return (*own, *between, *self._common)

    @cached_property
    def _place(self) -> FoundConstraint:
        """Where the group as a whole is to be."""
        reader = Reader(self._problems, self._item, self._at)
        place = reader.place(self._common, self._row.topology, self._item)
        segment = self._row.segment
        if place.size is None and segment is not None:
            size = self._first_number(segment.size)
            if size == 0:
                message = f"{', '.join(segment.size)}: a segment has at least one pod"
                self._problems.add(Problem(self._at, ProblemReason.INVALID_VALUE, message))
            size = min(size or 0, MOST_GANG_PODS)
            return replace(place, size=Found(size, self._at)) if size else place
        return place

    @cached_property
    def _segmented_role(self) -> str | None:
        """The role that the group's segments are for; None for the group itself."""
        segment = self._row.segment
        if segment is None or segment.role is None:
            return None
        return segment.role if segment.when is None or self._is(segment.when) else None

    def _in_order(self, total: int | None, parts: list[PlannedSubGroup]) -> list[PlannedSubGroup]:
        """Return `parts`; a part for each pod of the minimum if pods are created one by one."""
        ordered = self._row.ordered
        if ordered is None or total is None or total < 2 or not self._is(ordered.when):
            return parts
        if total > MOST_IN_ORDER:
            message = (
                f"the minimum is {total}, the pods are created one by one, and only "
                f"{MOST_IN_ORDER} of them can be waited for"
            )
            self._problems.add(Problem(self._at, ProblemReason.MINIMUM_TOO_HIGH, message))
            return parts
        start = self._first_number(ordered.start) or 0
        return into_order(parts[0], total, start, ordered.label)

    def _in_segments(self, parts: Sequence[PlannedSubGroup]) -> list[PlannedSubGroup]:
        """Return `parts` cut by the label of their segments; empty if that is not needed.

        Pods of a group that is created at once are numbered by the scheduler, unless one is left
        over.
        """
        segment, found = self._row.segment, self._place.constraint()
        if segment is None or segment.label is None or self._segmented_role is not None:
            return []
        cut = None if found is None else found.segments
        if found is None or cut is None or cut.size != self._first_number(segment.size):
            return []
        counts = [part.count for part in parts if not part.is_inner]
        total = sum(count or 0 for count in counts)
        has_one_left = (total - 1) % cut.size == 0
        if None in counts or total <= cut.size or not (_later(parts) or has_one_left):
            return []
        if total > cut.size * _MOST_SEGMENTS:
            message = f"{total} pods in segments of {cut.size}: the maximum is {_MOST_SEGMENTS}"
            self._problems.add(Problem(self._at, ProblemReason.INVALID_VALUE, message))
            return []
        return into_segments(parts, cut, segment.label, found.name)

    def _bounded(self, parts: Sequence[PlannedSubGroup]) -> list[PlannedSubGroup]:
        """Return `parts` with numbers that a PodGroup may have; a mistyped one may be far above.

        The gang then waits for as many pods as it may have.
        """
        most = max(part.least for part in parts)
        if most > MOST_GANG_PODS:
            message = f"{most} pods are needed at once: a gang may have at most {MOST_GANG_PODS}"
            self._problems.add(Problem(self._at, ProblemReason.MINIMUM_TOO_HIGH, message))
        return [
            replace(
                part,
                least=min(part.least, MOST_GANG_PODS),
                count=None if part.count is None else min(part.count, MOST_GANG_PODS),
            )
            for part in parts
        ]

    def _with_own_minimums(self, parts: Sequence[PlannedSubGroup]) -> list[PlannedSubGroup]:
        """Return `parts` with the minimums that their own pods or templates ask for."""
        found: list[PlannedSubGroup] = []
        for part in parts:
            asked = None
            if self._has_roles and not part.is_inner:
                asked = settings.look_up(settings.MIN_MEMBER, self._own(part), self._problems)
            if asked is not None:
                self._sources[f"subGroups[{part.name}].minMember"] = str(asked)
                self._demand_pods(asked, part.count, f" of {part.name}")
                found.append(replace(part, least=asked.value))
            else:
                found.append(part)
        return found

    def _with_total(
        self, parts: Sequence[PlannedSubGroup]
    ) -> tuple[int | None, list[PlannedSubGroup]]:
        """Return the minimum of the whole group, if there is one, and `parts` that keep to it."""
        leaves = [part for part in parts if not part.is_inner]
        asked = settings.look_up(self._min_setting, self._common, self._problems)
        left, counts = sum(part.least for part in leaves), [part.count for part in leaves]
        count = None if None in counts else sum(each or 0 for each in counts)
        if asked is None:
            total = self._filler.total()
            total = total if total is None else min(total, left)
            self._sources.setdefault("minMember", str(self._at))
        else:
            total = asked.value
            self._sources["minMember"] = str(asked)
            if self._demand_pods(asked, count, "") and not self._has_roles and self._row.left:
                total = min(total, left)  # fewer pods than that are left to run
        return total, list(parts) if total is None else _kept_to(total, parts)

    @property
    def _min_setting(self) -> settings.Setting[int]:
        return settings.MIN_MEMBER if not self._row.min_sub_group else settings.MIN_MEMBER_OF_PODS

    def _demand_pods(self, asked: Found[int], count: int | None, where: str) -> bool:
        """Return whether there can be as many pods as `asked`; None: that is not known."""
        if count is None or asked.value <= count:
            return True
        message = (
            f"the minimum{where} is {asked.value}, and at most {count} pods exist before they run"
        )
        self._problems.add(Problem(asked.source, ProblemReason.MINIMUM_TOO_HIGH, message))
        return False

    def _minimum(self, total: int | None, parts: Sequence[PlannedSubGroup]) -> dict[str, Any]:
        """Return the fields for the minimum of the whole group.

        The minimum counts the pods of the first stage; those of later ones do not exist yet, and
        their sub-groups say how many they need.
        """
        later = _later(parts)
        leaves = [part for part in parts if not part.is_inner]
        first = sum(part.least for part in leaves if part.name not in later)
        if total is not None and not later:
            first = max(first, total)
        first = min(first, MOST_GANG_PODS)
        asked = self._first_number(self._row.min_sub_group)
        if asked is None or not self._has_roles:
            return {"min_member": first}
        tops = [part for part in parts if part.parent is None]
        needed = min(asked, len(tops))
        sums = sorted(_pods_below(top, parts) for top in tops if top.name not in later)
        self._sources["minSubGroup"] = str(self._at)
        least = max(sum(sums[:needed]), total or 0) if not later else sum(sums[:needed])
        return {"min_member": min(least, MOST_GANG_PODS), "min_sub_group": needed}

    def _sub_groups(self, parts: Sequence[PlannedSubGroup]) -> Iterator[SubGroup]:
        reader, later = Reader(self._problems, self._item, self._at), _later(parts)
        for part in parts:
            place = FoundConstraint()
            if not part.is_inner or part.topology:
                own = () if part.is_inner else self._own(part)
                place = reader.place(own, part.topology, part.scope, self._common)
            constraint = part.constraint or place.constraint()
            if constraint is None and part.role == self._segmented_role and not part.is_inner:
                constraint, place = self._place.segments_alone(), self._place
            if constraint is not None:
                self._sources[f"subGroups[{part.name}].topology"] = place.source or str(self._at)
            template = part.template if part.name in later and not part.is_inner else None
            yield SubGroup(
                name=part.name,
                parent=part.parent,
                min_member=None if part.is_inner else part.least,
                topology=constraint,
                pod_labels=dict(part.labels),
                after=list(part.after),
                template=None if template is None else scheduling_part(template),
            )

    def _asked(self) -> Asked:
        """Return what the parts ask for, with the defaults of namespace and row."""
        roles: dict[str, PlannedSubGroup] = {}
        for part in self._parts:  # the parts of one role have one template
            if not part.is_inner:
                roles.setdefault(part.role, part)
        asked = [self._asker.asked(self._nearest(part)) for part in roles.values()]
        return self._asker.completed(
            self._asker.agreed(asked or [self._asker.asked(self._common)], self._at),
            self._row,
            self._target.link,
            pods_have_class=any(chain.pod.priority_class for chain in self._chains),
        )

    def _members(self) -> list[Member]:
        """Return the controllers of the pods, and the pods without one."""
        labels = dict(self._target.pod_labels)
        controllers, alone = set[str](), set[str]()
        for chain in self._chains:
            if chain.pod.controller is not None:
                controllers.add(chain.pod.controller.uid)
            else:
                alone.add(chain.pod.uid)
        return [
            *(Member(controller=uid, pod_labels=labels) for uid in sorted(controllers)),
            *(Member(pod=uid) for uid in sorted(alone)),
        ]

    def _first_number(self, paths: Sequence[str]) -> int | None:
        for path in paths:
            try:
                found = find(path, self._item)
                if found is not None:
                    return max(0, integer(found))
            except PathError as error:
                problem = Problem(self._at, ProblemReason.PATH_NOT_FOUND, str(error))
                self._problems.add(problem)
        return None

    def _is(self, path: str) -> bool:
        try:
            return bool(find(path, self._item))
        except PathError as error:
            self._problems.add(Problem(self._at, ProblemReason.PATH_NOT_FOUND, str(error)))
            return False


def assemble(
    members: Sequence[tuple[Target, Chain]], around: Surroundings, problems: set[Problem]
) -> Iterator[Group]:
    """Yield the PodGroups of `members`, pods with the same target, the oldest first."""
    chains = [chain for _, chain in members]
    asker = Asker(around, problems)
    gangs = [target for target, _ in members if not target.is_pod]
    if gangs:
        yield ObjectGang(gangs[-1], chains, asker, problems).group()
    else:
        yield from Independent(members[-1][0], chains, asker).groups()


def _is_read_by_scheduler(chain: Chain, asked: Asked) -> bool:
    """Return whether the scheduler finds all that a pod asks for at the pod itself."""
    labels = chain.pod.labels
    queue = None if asked.queue is None else asked.queue.value
    return queue == labels.get(names.QUEUE_LABEL) and asked.priority_class is None


def _kept_to(total: int, parts: Sequence[PlannedSubGroup]) -> list[PlannedSubGroup]:
    """Return `parts` with minimums that sum up to `total` at the most; the first come first."""
    left, found = total, list[PlannedSubGroup]()
    for part in parts:
        least = 0 if part.is_inner else min(part.least, left)
        left -= least
        found.append(replace(part, least=least))
    return found


def _later(parts: Sequence[PlannedSubGroup]) -> frozenset[str]:
    """Return the names of the parts whose pods come later: theirs, or those of a parent."""
    found: set[str] = set()
    for part in parts:  # a parent stands before its children
        if part.after or part.parent in found:
            found.add(part.name)
    return frozenset(found)


def _pods_below(top: PlannedSubGroup, parts: Sequence[PlannedSubGroup]) -> int:
    """Return the minimum of `top`, with that of the parts below it."""
    below = {top.name}
    for part in parts:
        if part.parent in below:
            below.add(part.name)
    return sum(part.least for part in parts if part.name in below and not part.is_inner)
