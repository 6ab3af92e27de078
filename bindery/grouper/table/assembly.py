"""Makes the PodGroups of one target from its row, its object and its pods.

Each step is pure: a `Step` has the value, and the problems and sources that the step has found.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bindery.api import names
from bindery.api.states import MOST_GANG_PODS, MOST_SUB_GROUPS
from bindery.grouper.table import settings
from bindery.grouper.table.asked import (
    Asked,
    Surroundings,
    agree,
    ask,
    complete,
    digest,
    name_of,
)
from bindery.grouper.table.cutting import MOST_IN_ORDER, into_order, into_segments
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.gang import ObjectGang, gang_of
from bindery.grouper.table.groups import Group, Problem, ProblemReason
from bindery.grouper.table.parts import PlannedSubGroup
from bindery.grouper.table.places import FoundConstraint, find_place
from bindery.grouper.table.settings import Found
from bindery.grouper.table.steps import Notes, Step
from bindery.grouper.table.targets import Target
from bindery.grouper.table.templates import scheduling_part
from bindery.grouper.table.walk import Chain
from bindery.kube.objects.podgroups import Member, PodGroupSpec, SubGroup

_MOST_SEGMENTS = MOST_SUB_GROUPS // 4
"""How many segments a gang is cut into: each takes a sub-group, and one for each role in it."""


def assemble(
    members: Sequence[tuple[Target, Chain]], around: Surroundings
) -> Step[Sequence[Group]]:
    """Return the PodGroups of `members`: pods with the same target, the oldest first."""
    chains = [chain for _, chain in members]
    targets = [target for target, _ in members if not target.is_pod]
    if not targets:
        return _independent(members[-1][0], chains, around)
    notes = Notes()
    gang = notes.take(gang_of(targets[-1], chains))
    return notes.step((notes.take(_group(gang, around)),))


def _made(
    at: Reference, name: str, chains: Sequence[Chain], asked: Asked, spec: Mapping[str, Any]
) -> Group:
    return Group(
        namespace=chains[0].pod.namespace,
        name=name,
        owner=at,
        spec=PodGroupSpec(**spec),
        sources=asked.sources(),
        labels=asked.labels(),
        annotations=asked.annotations(),
        pods=_uids(chains),
    )


def _uids(chains: Iterable[Chain]) -> tuple[str, ...]:
    return tuple(sorted(chain.pod.uid for chain in chains))


# -- pods that are independent of each other ------------------------------------------------------


def _independent(
    target: Target, chains: Sequence[Chain], around: Surroundings
) -> Step[Sequence[Group]]:
    """Return a PodGroup; several if the pods ask for different queues or priorities."""
    notes, at = Notes(), target.link.reference
    found: dict[tuple[Any, ...], list[tuple[Chain, Asked]]] = {}
    for chain in chains:
        has_class = bool(chain.pod.priority_class)
        asked = notes.take(ask(chain.links, around))
        asked = notes.take(
            complete(asked, target.row, target.link, around, pods_have_class=has_class)
        )
        found.setdefault(asked.key, []).append((chain, asked))
    groups: list[Group] = []
    for index, pods in enumerate(found.values()):  # the oldest pod has the plain name
        chain, asked = pods[0]
        if chain.pod.controller is None and _is_read_by_scheduler(chain, asked):
            continue  # a pod alone is a gang of one without a PodGroup
        if chain.pod.controller is not None and len(found) == 1:
            members = [Member(controller=chain.pod.controller.uid)]
        else:
            members = [Member(pod=uid) for uid in _uids(chain for chain, _ in pods)]
        spec = {**asked.to_spec(), "min_member": 0, "members": members}
        name = name_of(at, "" if index == 0 else digest(asked.key))
        groups.append(_made(at, name, [chain for chain, _ in pods], asked, spec))
    return notes.step(groups)


# -- pods of one object that run together ----------------------------------------------------------


def _group(gang: ObjectGang, around: Surroundings) -> Step[Group]:
    """Return the PodGroup of `gang`. Each step continues with the parts of the one before."""
    notes = Notes()
    place = notes.take(_place(gang))
    segmented = notes.take(_segmented_role(gang))
    parts = notes.take(_with_own_minimums(gang))
    total, parts = notes.take(_with_total(gang, parts))
    parts = notes.take(_bounded(gang, parts))
    asked = notes.take(_asked(gang, around))
    parts = notes.take(_in_order(gang, total, parts))
    cut = [] if segmented is not None else notes.take(_in_segments(gang, place, parts))
    parts = cut or parts
    minimum = notes.take(_minimum(gang, total, parts))
    spec = {**asked.to_spec(), **minimum}
    if parts[0].name:
        spec["sub_groups"] = notes.take(_sub_groups(gang, place, segmented, parts))
    constraint = place.constraint(segments=segmented is None and not cut)
    if constraint is not None:
        spec["topology"] = constraint
        notes.sources["topology"] = place.source
    spec["members"] = _members(gang)
    name = name_of(gang.at, gang.target.part)
    made = _made(gang.at, name, gang.chains, asked, spec)
    return notes.step(replace(made, sources=notes.sources))


def _place(gang: ObjectGang) -> Step[FoundConstraint]:
    """Return the constraint of the gang as a whole."""
    notes, segment = Notes(), gang.row.segment
    place = notes.take(find_place(gang.at, gang.common(), gang.row.topology, gang.item))
    if place.size is None and segment is not None:
        size = notes.take(gang.first_number(segment.size))
        if size == 0:
            message = f"{', '.join(segment.size)}: a segment has at least one pod"
            notes.add(gang.at, ProblemReason.INVALID_VALUE, message)
        elif size is not None:
            place = replace(place, size=Found(min(size, MOST_GANG_PODS), gang.at))
    return notes.step(place)


def _segmented_role(gang: ObjectGang) -> Step[str | None]:
    """Return the role that the gang's segments are for; None for the gang itself."""
    segment = gang.row.segment
    if segment is None or segment.role is None or segment.when is None:
        return Step(None if segment is None else segment.role)
    is_cut = gang.is_true(segment.when)
    return Step(segment.role if is_cut.value else None, is_cut.problems)


def _with_own_minimums(gang: ObjectGang) -> Step[list[PlannedSubGroup]]:
    """Return the parts with the minimums that their own pods or templates ask for."""
    notes, found = Notes(), list[PlannedSubGroup]()
    for part in gang.parts:
        asked = None
        if gang.has_roles and not part.is_inner:
            asked = notes.take(settings.look_up(settings.MIN_MEMBER, gang.own(part)))
        if asked is not None:
            notes.sources[f"subGroups[{part.name}].minMember"] = str(asked)
            notes.problems |= _too_high(asked, part.count, f" of {part.name}")
        found.append(part if asked is None else replace(part, least=asked.value))
    return notes.step(found)


def _with_total(
    gang: ObjectGang, parts: Sequence[PlannedSubGroup]
) -> Step[tuple[int | None, list[PlannedSubGroup]]]:
    """Return the minimum of the whole gang, if there is one, and `parts` that keep to it."""
    notes, row = Notes(), gang.row
    leaves = [part for part in parts if not part.is_inner]
    setting = settings.MIN_MEMBER_OF_PODS if row.min_sub_group else settings.MIN_MEMBER
    asked = notes.take(settings.look_up(setting, gang.common()))
    left, counts = sum(part.least for part in leaves), [part.count for part in leaves]
    if asked is None:
        total = None if gang.total is None else min(gang.total, left)
        notes.sources["minMember"] = str(gang.at)
    else:
        total = asked.value
        notes.sources["minMember"] = str(asked)
        count = None if None in counts else sum(each or 0 for each in counts)
        too_high = _too_high(asked, count, "")
        notes.problems |= too_high
        if not too_high and not gang.has_roles and row.left:
            total = min(total, left)  # fewer pods than that are left to run
    return notes.step((total, list(parts) if total is None else _kept_to(total, parts)))


def _too_high(asked: Found[int], count: int | None, where: str) -> frozenset[Problem]:
    """Return the problem that fewer pods than `asked` can exist. `count`: None if unknown."""
    if count is None or asked.value <= count:
        return frozenset()
    message = f"the minimum{where} is {asked.value}, and at most {count} pods exist before they run"
    return frozenset({Problem(asked.source, ProblemReason.MINIMUM_TOO_HIGH, message)})


def _bounded(gang: ObjectGang, parts: Sequence[PlannedSubGroup]) -> Step[list[PlannedSubGroup]]:
    """Return `parts` with numbers that a PodGroup may have; a mistyped one may be far above.

    The gang then waits for as many pods as it may have.
    """
    notes, most = Notes(), max(part.least for part in parts)
    if most > MOST_GANG_PODS:
        message = f"{most} pods are needed at once: a gang may have at most {MOST_GANG_PODS}"
        notes.add(gang.at, ProblemReason.MINIMUM_TOO_HIGH, message)
    return notes.step(
        [
            replace(
                part,
                least=min(part.least, MOST_GANG_PODS),
                count=None if part.count is None else min(part.count, MOST_GANG_PODS),
            )
            for part in parts
        ]
    )


def _asked(gang: ObjectGang, around: Surroundings) -> Step[Asked]:
    """Return the values that the parts agree on, with the defaults of namespace and row."""
    notes = Notes()
    roles: dict[str, PlannedSubGroup] = {}
    for part in gang.parts:  # the parts of one role have one template
        if not part.is_inner:
            roles.setdefault(part.role, part)
    links = [gang.nearest(part) for part in roles.values()] or [gang.common()]
    asked = notes.take(agree([notes.take(ask(each, around)) for each in links], gang.at))
    has_class = any(chain.pod.priority_class for chain in gang.chains)
    asked = notes.take(
        complete(asked, gang.row, gang.target.link, around, pods_have_class=has_class)
    )
    notes.sources |= asked.sources()
    return notes.step(asked)


def _in_order(
    gang: ObjectGang, total: int | None, parts: list[PlannedSubGroup]
) -> Step[list[PlannedSubGroup]]:
    """Return `parts`; a part for each pod of the minimum if pods are created one by one."""
    notes, ordered = Notes(), gang.row.ordered
    if ordered is None or total is None or total < 2:
        return Step(parts)
    if not notes.take(gang.is_true(ordered.when)):
        return notes.step(parts)
    if total > MOST_IN_ORDER:
        message = (
            f"the minimum is {total}, the pods are created one by one, and only "
            f"{MOST_IN_ORDER} of them can be waited for"
        )
        notes.add(gang.at, ProblemReason.MINIMUM_TOO_HIGH, message)
        return notes.step(parts)
    start = notes.take(gang.first_number(ordered.start)) or 0
    return notes.step(into_order(parts[0], total, start, ordered.label))


def _in_segments(
    gang: ObjectGang, place: FoundConstraint, parts: Sequence[PlannedSubGroup]
) -> Step[list[PlannedSubGroup]]:
    """Return `parts` cut by the label of their segments; empty if that is not needed.

    Pods of a gang that is created at once are numbered by the scheduler, unless one is left over.
    """
    notes, segment, found = Notes(), gang.row.segment, place.constraint()
    if segment is None or segment.label is None or found is None or found.segments is None:
        return Step([])
    size = found.segments.size
    if size != notes.take(gang.first_number(segment.size)):
        return notes.step([])
    counts = [part.count for part in parts if not part.is_inner]
    total = sum(count or 0 for count in counts)
    has_one_left = (total - 1) % size == 0
    if None in counts or total <= size or not (_later(parts) or has_one_left):
        return notes.step([])
    if total > size * _MOST_SEGMENTS:
        message = f"{total} pods in segments of {size}: the maximum is {_MOST_SEGMENTS}"
        notes.add(gang.at, ProblemReason.INVALID_VALUE, message)
        return notes.step([])
    return notes.step(into_segments(parts, found.segments, segment.label, found.name))


def _minimum(
    gang: ObjectGang, total: int | None, parts: Sequence[PlannedSubGroup]
) -> Step[dict[str, int]]:
    """Return the fields for the minimum of the whole gang.

    The minimum counts the pods of the first stage. Pods of later stages do not exist yet; the
    minimums of their sub-groups hold for them.
    """
    notes, later = Notes(), _later(parts)
    asked = notes.take(gang.first_number(gang.row.min_sub_group))
    if asked is None or not gang.has_roles:
        first = sum(part.least for part in parts if not part.is_inner and part.name not in later)
        least = first if later else max(first, total or 0)
        return notes.step({"min_member": min(least, MOST_GANG_PODS)})
    tops = [part for part in parts if part.parent is None]
    needed = min(asked, len(tops))
    sums = sorted(_pods_below(top, parts) for top in tops if top.name not in later)
    least = sum(sums[:needed]) if later else max(sum(sums[:needed]), total or 0)
    notes.sources["minSubGroup"] = str(gang.at)
    return notes.step({"min_member": min(least, MOST_GANG_PODS), "min_sub_group": needed})


def _sub_groups(
    gang: ObjectGang,
    whole: FoundConstraint,
    segmented: str | None,
    parts: Sequence[PlannedSubGroup],
) -> Step[list[SubGroup]]:
    """Return `parts` as a PodGroup has them. `segmented`: the role with the segments of `whole`."""
    notes, later, found = Notes(), _later(parts), list[SubGroup]()
    for part in parts:
        place = FoundConstraint()
        if not part.is_inner or part.topology:
            own = () if part.is_inner else gang.own(part)
            step = find_place(gang.at, own, part.topology, part.scope, gang.common())
            place = notes.take(step)
        constraint = part.constraint or place.constraint()
        if constraint is None and part.role == segmented and not part.is_inner:
            constraint, place = whole.segments_alone(), whole
        if constraint is not None:
            notes.sources[f"subGroups[{part.name}].topology"] = place.source or str(gang.at)
        template = part.template if part.name in later and not part.is_inner else None
        found.append(
            SubGroup(
                name=part.name,
                parent=part.parent,
                min_member=None if part.is_inner else part.least,
                topology=constraint,
                pod_labels=dict(part.labels),
                after=list(part.after),
                template=None if template is None else scheduling_part(template),
            )
        )
    return notes.step(found)


def _members(gang: ObjectGang) -> list[Member]:
    """Return the controllers of the pods, and the pods without one."""
    labels, pods = dict(gang.target.pod_labels), [chain.pod for chain in gang.chains]
    controllers = {pod.controller.uid for pod in pods if pod.controller is not None}
    alone = {pod.uid for pod in pods if pod.controller is None}
    return [
        *(Member(controller=uid, pod_labels=labels) for uid in sorted(controllers)),
        *(Member(pod=uid) for uid in sorted(alone)),
    ]


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
