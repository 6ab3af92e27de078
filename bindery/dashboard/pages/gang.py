"""The page of one gang: its pods, where they run, its stages, conditions, evictions and past."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bindery.answers.evictions import GangEviction
from bindery.api.names import SUB_GROUP_LABEL
from bindery.dashboard.facts import GangFact, NextStep, Picture, RoomPromise
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.pages.gangs import GangRow, gang_row
from bindery.dashboard.pages.past import PastRow, past_rows
from bindery.dashboard.past import HistoryReader
from bindery.kube.objects.podgroups import PodGroup, SubGroup, TopologyConstraint
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.jobs import JobKey

HEADINGS: Final = (
    Heading("name", "Pod"),
    Heading("phase", "Phase"),
    Heading("node", "Node"),
    Heading("domain", "Domain"),
    Heading("stage", "Sub-group"),
    Heading("message", "Message"),
)
_SHOWN_PAST: Final = 10


@dataclass(frozen=True, slots=True)
class PodRow:
    """One pod of the gang."""

    name: str
    phase: str
    node: str
    domain: str
    """The topology domain of its node, such as a rack; empty if it is not known."""
    stage: str
    message: str
    """Why it has no node, or why it does not run."""
    logs: str
    """The command that shows its logs."""


@dataclass(frozen=True, slots=True)
class StatedCondition:
    """A condition of the PodGroup or the pod."""

    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class StageRow:
    """A sub-group."""

    name: str
    parent: str
    least: int | None
    pods: int
    after: tuple[str, ...]
    """The sub-groups that come first, each with the state that it must reach."""
    kept_on: tuple[str, ...]
    """The nodes on which room is kept for it."""
    until: float | None
    problem: str


@dataclass(frozen=True, slots=True)
class DomainRow:
    """A domain of the topology, with the gang's nodes and pods in it."""

    name: str
    nodes: tuple[tuple[str, int], ...]
    """Each node with the number of the gang's pods there."""
    pods: int


@dataclass(frozen=True)
class GangPage:
    """One gang."""

    gang: GangRow
    priority_class: str
    topology: str
    """Its topology constraint in words; empty without one."""
    domains: tuple[DomainRow, ...]
    stages: tuple[StageRow, ...]
    conditions: tuple[StatedCondition, ...]
    evicted: GangEviction | None
    steps: tuple[NextStep, ...]
    """What the next cycle would do for the gang, or to its pods."""
    promises: tuple[RoomPromise, ...]
    logs: str
    """The command that shows the logs of all pods."""
    past: tuple[PastRow, ...]
    """What happened last, the newest first; the page of its past has all."""
    past_count: int
    past_since: float | None
    listing: Listing[PodRow]


def gang_page(
    picture: Picture, key: JobKey, asked: TableQuery, past: HistoryReader
) -> GangPage | None:
    """Return the page of the gang `key`; None if there is none that may be shown."""
    gang = picture.gang_by_key.get(key)
    if gang is None:
        return None
    rows = [_pod_row(picture, pod) for pod in gang.pods]
    before = past_rows(key, past)
    return GangPage(
        gang=gang_row(picture, gang),
        priority_class=(gang.group.spec.priority_class_name or "") if gang.group else "",
        topology=_topology(gang.group.spec.topology) if gang.group is not None else "",
        domains=tuple(_domains(rows)),
        stages=tuple(_stages(gang)),
        conditions=tuple(_conditions(gang)),
        evicted=gang.evicted,
        steps=tuple(step for step in picture.steps if key in (step.gang, step.claimant)),
        promises=tuple(each for each in picture.promises if each.gang == key),
        logs=_logs(gang),
        past=tuple(before[:_SHOWN_PAST]),
        past_count=len(before),
        past_since=past.since,
        listing=listing("Pods", HEADINGS, rows, asked),
    )


def _pod_row(picture: Picture, pod: Pod) -> PodRow:
    meta, status = pod.metadata, pod.status
    node = picture.node_by_name.get(pod.spec.node_name)
    phase = status.phase or "Pending"
    conditions = [each for each in status.conditions or () if each.status == "False"]
    problem = next((each for each in conditions if each.message or each.reason), None)
    return PodRow(
        name=meta.name,
        phase="Terminating" if meta.deletion_timestamp is not None else phase,
        node=pod.spec.node_name,
        domain=node.rack or node.zone if node is not None else "",
        stage=meta.labels.get(SUB_GROUP_LABEL, ""),
        message=": ".join(part for part in (_waits(pod), status.message) if part)
        or (f"{problem.reason}: {problem.message}" if problem is not None else ""),
        logs=f"kubectl logs -n {meta.namespace} {meta.name} --all-containers",
    )


def _waits(pod: Pod) -> str:
    """Return why a container of `pod` waits."""
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    for each in statuses:
        if each.state is not None and each.state.waiting is not None:
            waiting = each.state.waiting
            return ": ".join(part for part in (waiting.reason, waiting.message) if part)
    return pod.status.reason


def _domains(rows: list[PodRow]) -> Iterator[DomainRow]:
    by_domain: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.node:
            by_domain[row.domain][row.node] += 1
    for domain, nodes in sorted(by_domain.items()):
        yield DomainRow(domain, tuple(sorted(nodes.items())), sum(nodes.values()))


def _stages(gang: GangFact) -> Iterator[StageRow]:
    group: PodGroup | None = gang.group
    rooms = {each.stage: each for each in gang.stages}
    for each in group.spec.sub_groups if group is not None else ():
        room = rooms.get(each.name)
        yield StageRow(
            name=each.name,
            parent=each.parent or "",
            least=each.min_member,
            pods=sum(_is_in(pod, each) for pod in gang.pods),
            after=tuple(f"{it.sub_group} ({it.condition})" for it in each.after),
            kept_on=room.nodes if room is not None else (),
            until=room.until if room is not None else None,
            problem=room.problem if room is not None else "",
        )


def _is_in(pod: Pod, part: SubGroup) -> bool:
    labels = pod.metadata.labels
    named = labels.get(SUB_GROUP_LABEL)
    if named is not None or not part.pod_labels:
        return named == part.name
    return all(labels.get(key) == value for key, value in part.pod_labels.items())


def _conditions(gang: GangFact) -> Iterator[StatedCondition]:
    """Yield the conditions of the gang; the messages were reduced with the gang."""
    if gang.group is not None:
        found = gang.group.status.conditions or ()
    else:
        found = gang.pods[0].status.conditions or () if len(gang.pods) == 1 else ()
    for each in found:
        since = each.last_transition_time or ""
        yield StatedCondition(each.type, each.status, each.reason, each.message, since)


def _topology(constraint: TopologyConstraint | None) -> str:
    if constraint is None:
        return ""
    parts = []
    if constraint.required:
        parts.append(f"all pods in one domain of {constraint.required}")
    if constraint.preferred:
        parts.append(f"if possible in one of {constraint.preferred}")
    if constraint.hyper_node_tier is not None:
        parts.append(f"below a HyperNode of tier {constraint.hyper_node_tier} at most")
    if constraint.exclusive:
        parts.append("alone there")
    return ", ".join(parts)


def _logs(gang: GangFact) -> str:
    names = [pod.metadata.name for pod in gang.pods if pod.spec.node_name]
    if not names:
        return ""
    namespace, each = gang.key.namespace, " ".join(names[:20])
    return f"for pod in {each}; do kubectl logs -n {namespace} $pod --all-containers --prefix; done"
