"""Makes our PodGroup from an upstream PodGroup, or from a tree of CompositePodGroups.

The result is a function of the groups, the set of their pods and the objects around them. Upstream
has no queues, preferred levels and run times: ours are read from labels and annotations of the
PodGroup, then of the groups above it, the Workload, the object that it was made for, and the pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.api import names
from bindery.api.states import ENDED_POD_PHASES, MOST_GANG_PODS
from bindery.grouper.table import settings
from bindery.grouper.table.facts import PodFacts, Reference, mapping
from bindery.grouper.table.groups import Group, GroupPlan, Problem, ProblemReason, WantedObject
from bindery.grouper.table.settings import Found, Setting
from bindery.grouper.table.steps import Notes, Step
from bindery.grouper.table.walk import Link, link_of, link_of_pod
from bindery.grouper.upstream.model import Body, UpstreamGroup
from bindery.kube.objects.podgroups import (
    Member,
    PodGroupSpec,
    Segments,
    SubGroup,
    TopologyConstraint,
)

_COMPOSITE_PREFIX: Final = "composite-"
"""Before the name of a CompositePodGroup as a sub-group: a PodGroup may have the same name."""


@dataclass(frozen=True)
class UpstreamGang:
    """A tree of upstream's groups and everything that our PodGroup follows from."""

    root: UpstreamGroup
    below: Sequence[UpstreamGroup] = ()
    """All groups below the root, if that is a CompositePodGroup."""
    pods: Sequence[PodFacts] = ()
    """The pods of our schedulers that name one of the groups."""
    strangers: Sequence[PodFacts] = ()
    """The pods of other schedulers that name one of the groups."""
    workloads: Mapping[str, Body] = field(default_factory=dict)
    """Workloads by name."""
    controllers: Mapping[tuple[str, str, str], Body] = field(default_factory=dict)
    """API group, kind and name -> an object that a Workload was made for."""
    demands_one_priority: bool = False


@dataclass(frozen=True)
class UpstreamPlan:
    """Our PodGroup, or why there is none."""

    plan: GroupPlan
    error: str = ""
    """Why the groups cannot be scheduled as they are: for upstream's reason SchedulerError."""


def plan(gang: UpstreamGang) -> UpstreamPlan:
    """Return our PodGroup for `gang`."""
    error = _error(gang)
    if error:
        problem = Problem(gang.root.reference, ProblemReason.GROUP_NOT_USABLE, error)
        return UpstreamPlan(GroupPlan(problems=(problem,)), error)
    reading = _Reading(_links(gang))
    wanted = tuple(_wanted(gang))
    spec = _spec(gang, reading)
    # Without pods, the group's own label counts.
    pool = reading.node_pool() if gang.pods else reading.value("nodePool", settings.NODE_POOL)
    user = reading.value("user", settings.USER)
    asked = reading.notes.take(settings.look_up(settings.PROVISIONING, reading.links))
    if any(group.is_disrupted_whole for group in gang.below) and not gang.root.is_disrupted_whole:
        message = "the disruption mode of a group below another is ignored: its minimum protects it"
        reading.notes.add(gang.root.reference, ProblemReason.INVALID_VALUE, message)
    made = Group(
        namespace=gang.root.reference.namespace,
        name=_name(gang.root),
        owner=gang.root.reference,
        spec=spec,
        sources=dict(sorted(reading.notes.sources.items())),
        labels={
            key: value
            for key, value in ((names.NODE_POOL_LABEL, pool), (names.USER_KEY, user))
            if value
        },
        annotations=settings.provisioning_annotation(asked),
        pods=tuple(sorted(pod.uid for pod in gang.pods)),
    )
    return UpstreamPlan(GroupPlan((made,), tuple(sorted(reading.notes.problems)), wanted))


def _name(group: UpstreamGroup) -> str:
    """Return the name of our PodGroup: with a part of the UID, as names may be used again."""
    at = group.reference
    return f"{at.kind.lower()}-{at.name[:180]}-{at.uid[:8]}".strip("-.")


# -- what cannot be scheduled --------------------------------------------------------------------


def _error(gang: UpstreamGang) -> str:
    for group in (gang.root, *gang.below):
        if group.problem:
            return f"{group.reference}: {group.problem}"
        if (group.minimum or 0) > MOST_GANG_PODS:
            text = f"its minimum is {group.minimum}, and at most {MOST_GANG_PODS} is possible"
            return f"{group.reference}: {text}"
    strange = _living(gang.strangers)
    if strange and _living(gang.pods):
        first = min(strange, key=lambda pod: pod.name)
        return (
            f"its pods name several schedulers: pod {first.name} names "
            f"{first.scheduler_name or 'none'}; one scheduler must have all pods of a group"
        )
    if gang.demands_one_priority:
        classes = sorted({pod.priority_class or "(none)" for pod in _living(gang.pods)})
        if len(classes) > 1:
            return f"its pods have several priority classes: {', '.join(classes)}"
    return ""


def _living(pods: Iterable[PodFacts]) -> list[PodFacts]:
    return [pod for pod in pods if pod.phase not in ENDED_POD_PHASES and not pod.is_deleted]


# -- the spec ------------------------------------------------------------------------------------


def _spec(gang: UpstreamGang, reading: "_Reading") -> PodGroupSpec:
    root = gang.root
    fields: dict[str, Any] = {
        "queue": reading.value("queue", settings.QUEUE) or "",
        "priority_class_name": root.priority_class
        or reading.value("priorityClassName", settings.PRIORITY_CLASS),
        "expected_runtime_seconds": reading.value("expectedRuntimeSeconds", settings.RUNTIME),
        "topology": _topology(root, reading),
        "disruption_mode": "Group" if root.is_disrupted_whole else None,
        "preemption_policy": "Never" if root.never_preempts else None,
    }
    preemptible = reading.value("preemptibility", settings.PREEMPTIBLE)
    if preemptible is not None:
        fields["preemptibility"] = "Preemptible" if preemptible else "NonPreemptible"
    if not root.is_composite:
        fields["members"] = [Member(scheduling_group=root.name)]
        # A basic group is never held back: one pod is enough, and the others follow.
        fields["min_member"] = 1 if root.minimum is None else root.minimum
        return PodGroupSpec(**fields)
    leaves = [group for group in gang.below if not group.is_composite]
    fields["members"] = [Member(scheduling_group=leaf.name) for leaf in leaves]
    fields["min_sub_group"] = root.minimum or 0
    fields["sub_groups"] = [_sub_group(group, root) for group in gang.below]
    return PodGroupSpec(**fields)


def _sub_group(group: UpstreamGroup, root: UpstreamGroup) -> SubGroup:
    topology = TopologyConstraint(required=group.topology_key) if group.topology_key else None
    parent = None if group.parent == root.name else f"{_COMPOSITE_PREFIX}{group.parent}"
    if group.is_composite:
        return SubGroup(
            name=f"{_COMPOSITE_PREFIX}{group.name}",
            parent=parent,
            min_sub_group=group.minimum or 0,
            topology=topology,
        )
    return SubGroup(
        name=group.name,
        parent=parent,
        min_member=1 if group.minimum is None else group.minimum,
        scheduling_group=group.name,
        topology=topology,
    )


def _topology(root: UpstreamGroup, reading: "_Reading") -> TopologyConstraint | None:
    """Return the constraint: upstream's key as the required level, the rest by our annotations."""
    name = reading.value("topology", settings.TOPOLOGY)
    required = root.topology_key or reading.value("topology", settings.TOPOLOGY_REQUIRED)
    preferred = reading.value("topology", settings.TOPOLOGY_PREFERRED)
    size = reading.value("topology", settings.SEGMENT_SIZE)
    if not (required or preferred or size):
        return None
    segments = None
    if size:
        segments = Segments(
            size=size,
            required=reading.value("topology", settings.SEGMENT_REQUIRED),
            preferred=reading.value("topology", settings.SEGMENT_PREFERRED),
        )
    return TopologyConstraint(
        name=name, required=required or None, preferred=preferred, segments=segments
    )


# -- labels and annotations ----------------------------------------------------------------------


@dataclass
class _Reading:
    """Reads settings and remembers where they came from."""

    links: Sequence[Link]
    notes: Notes = field(default_factory=Notes)

    def value(self, name: str, setting: Setting[Any]) -> Any:
        """Return the value of `setting` for the field `name`; None if nothing sets it."""
        return self._noted(name, settings.look_up(setting, self.links))

    def node_pool(self) -> str | None:
        """Return the pool of the pods; None if they are in the default one."""
        pool: str | None = self._noted("nodePool", settings.node_pool(self.links))
        return pool

    def _noted(self, name: str, step: Step[Found[Any] | None]) -> Any:
        found = self.notes.take(step)
        if found is None:
            return None
        self.notes.sources.setdefault(name, str(found.source))
        return found.value


def _links(gang: UpstreamGang) -> tuple[Link, ...]:
    root = gang.root
    links = [Link(root.reference, root.labels, root.annotations, None)]
    workload = gang.workloads.get(root.workload)
    if workload is not None:
        links.append(link_of(workload))
        at = _controller(workload, root.reference)
        controller = gang.controllers.get(at) if at is not None else None
        if controller is not None:
            links.append(link_of(controller))
    pods = sorted(gang.pods, key=lambda pod: (pod.created, pod.name, pod.uid))
    return (*links, *(link_of_pod(pod) for pod in pods))


def _controller(workload: Body, at: Reference) -> tuple[str, str, str] | None:
    found = mapping(mapping(workload.get("spec")).get("controllerRef"))
    name = str(found.get("name") or "")
    if not name or not at.namespace:
        return None
    return str(found.get("apiGroup") or ""), str(found.get("kind") or ""), name


def _wanted(gang: UpstreamGang) -> Iterable[WantedObject]:
    """Yield the object that the Workload was made for, while it was not given."""
    workload = gang.workloads.get(gang.root.workload)
    at = _controller(workload, gang.root.reference) if workload is not None else None
    if at is not None and at not in gang.controllers:
        group, kind, name = at
        yield WantedObject(group, kind, gang.root.reference.namespace, name)
