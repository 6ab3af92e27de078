"""The explanation of a waiting job: one cycle in memory, and its findings.

`bindery explain` and the rehearsal call this. The cycle is the engine's own, so the explanation is
what the scheduler would do now.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bindery.api import numaplacement
from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.actions.consolidation import most_moved
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.advice import advice, changed_object, node_advice
from bindery.scheduler.insight.objections import BUDGET
from bindery.scheduler.insight.order import Position, Turns
from bindery.scheduler.insight.ranking import Ranking, rank_pod, rankings
from bindery.scheduler.insight.shares import QueueShare, chain_shares
from bindery.scheduler.insight.victims import VictimPlan, cheapest_victims
from bindery.scheduler.model.deletions import unended_text
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import Job, JobKey, Task, Uid
from bindery.scheduler.model.reasons import LACKS_ROOM, JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.starts import late_starts, late_text
from bindery.scheduler.planning.explain import node_reasons
from bindery.scheduler.planning.reports import CycleReport, ReservationReport, StageReport
from bindery.scheduler.planning.session import Session

_OF_NODES = LACKS_ROOM | {JobReason.FITS_NO_NODE}
"""The reasons that are about nodes."""


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """The nodes that would take one of some equal pods, and the reasons against the others."""

    pod_count: int
    requests: dict[str, str]
    """The requests of one pod, by resource."""
    node_count: int
    open_nodes: int
    """Number of nodes that would take one such pod."""
    against: dict[str, int]
    """Reason -> number of nodes, most first. Each node is counted once."""
    counts_gpus: bool = False
    """Whether queues count GPUs for one pod, also those of its resource claims."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod and its planned node."""

    name: str
    node: str
    zones: tuple[int, ...] = ()
    """The NUMA zones that it is expected to get; empty if none are predicted."""


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A planned eviction: the pod, the action and the job that needs the room."""

    action: str
    namespace: str
    pod: str
    job: JobKey
    queue: str
    node: str
    moves_to: str
    """The node that is promised to it instead; empty if it must wait."""
    preemptor: JobKey


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """Room that is kept for a later stage of a gang."""

    job: JobKey
    stage: StageReport


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of a job, and why it waits."""

    job: JobKey
    queue: str
    priority: int
    preemptible: bool
    min_member: int
    placed_pods: int
    waiting_pods: int
    satisfied: bool
    """Whether its gang has its minimum; extra pods may still wait."""
    reason: str
    """One CamelCase word; empty if none of its pods waits."""
    message: str
    would_bind: tuple[PlannedPod, ...]
    """The pods that the next cycle would commit."""
    evictions: tuple[PlannedEviction, ...]
    """The pods that the next cycle would evict for it."""
    refused_by: str
    """The disruption budget that forbids these evictions; empty if none does."""
    nodes: tuple[NodeCounts, ...]
    shares: tuple[QueueShare, ...]
    """Its queue and those above it, from the top down."""
    position: Position | None
    victims: VictimPlan | None
    """The victims that would make it fit, although a rule may forbid it."""
    reservation: ReservationReport | None
    """The room that is reserved for it."""
    advice: str
    rankings: tuple[Ranking, ...] = ()
    """The best nodes for its pods, or for the one pod that was asked about."""
    stages: tuple[StageReport, ...] = ()
    """The room of its later stages."""
    not_running: str = ""
    """Which bound pods do not run, or are deleted and do not end, and why; empty if there are none.
    """
    kept_for_others: tuple[KeptRoom, ...] = ()
    """Room that is kept for later stages of other gangs, while it finds none."""


@dataclass(frozen=True, slots=True)
class _Before:
    """The state of a job before the cycle."""

    job: Job
    priority: int
    placed_pods: int
    waiting_pods: int
    nodes: tuple[NodeCounts, ...]
    shares: tuple[QueueShare, ...]
    victims: VictimPlan | None
    not_running: str
    not_running_reason: str


@dataclass(frozen=True, slots=True)
class _AtEnd:
    """The state of a waiting job in the session at the end of the cycle."""

    position: Position | None = None
    victims: VictimPlan | None = None


def explain(engine: Engine, key: JobKey, pod: str = "") -> Explanation | None:
    """Run a cycle and undo it; return the explanation of the job `key`, None if it is unknown.

    `pod`: the name of the pod to rank nodes for; "" ranks nodes for the first pods that differ.
    After an error, `engine` must not be used again.
    """
    ranked = _rankings(engine, key, pod)
    explained = explain_all(engine, (key,)).get(key)
    return replace(explained, rankings=ranked) if explained is not None else None


def _rankings(engine: Engine, key: JobKey, pod: str) -> tuple[Ranking, ...]:
    job = engine.cluster.state.jobs.get(key)
    found: tuple[Ranking, ...] = ()
    if job is not None:
        with engine.session() as session, session.guarded(job):
            found = rank_pod(session, job, pod) if pod else rankings(session, job)
    return found


def explain_all(engine: Engine, keys: Collection[JobKey]) -> dict[JobKey, Explanation]:
    """Return the explanations of the jobs of `keys` that exist, all from one cycle, undone."""
    jobs = engine.cluster.state.jobs
    # A session of its own, because the cycle takes nodes and shares before it ends.
    with engine.session() as session:
        before = {key: _before(session, jobs[key], engine) for key in keys if key in jobs}
    at_end: dict[JobKey, _AtEnd] = {}

    def inspect(session: Session) -> None:
        turns = Turns(session)
        for key, known in before.items():
            if known.job.pending and not known.job.promised.total:
                # Pods that the cycle has just placed cannot be victims; those before it can.
                victims = _victims(session, known.job, engine) or known.victims
                at_end[key] = _AtEnd(turns.position(known.job), victims)

    drafts = engine.trial(inspect)
    return {
        key: _explanation(engine, known, at_end.get(key, _AtEnd()), drafts)
        for key, known in before.items()
    }


def _before(session: Session, job: Job, engine: Engine) -> _Before:
    late = late_starts(job, session.state.nodes, session.now)
    unended = unended_text(job, session.state.nodes.nodes)
    not_running = [late_text(late, job)] if late else []
    return _Before(
        job,
        priority=session.priority(job),
        placed_pods=job.placed.total,
        waiting_pods=job.waiting.total + job.gated_count,
        nodes=tuple(_node_counts(session, job)),
        shares=chain_shares(session, session.queue_row(job)),
        victims=_victims(session, job, engine),
        not_running="; ".join([*not_running, *([unended] if unended else [])]),
        not_running_reason=(
            JobReason.PODS_NOT_DELETED.value if unended else late[0].reason if late else ""
        ),
    )


def _zones(data: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
    placement = numaplacement.from_data(data.get(numaplacement.PLUGIN, {}))
    return () if placement is None else tuple(placement.zones)


def _explanation(
    engine: Engine, known: _Before, at_end: _AtEnd, drafts: Sequence[StatementDraft]
) -> Explanation:
    job = known.job
    report = engine.report.jobs.get(job.key)
    bound = tuple(
        PlannedPod(task.name, pod.selected_node, _zones(pod.plugin_data))
        for draft in drafts
        for task, pod in zip(draft.tasks, draft.spec.pods, strict=True)
        if task.job == job.key
    )
    evictions = [each for each in engine.report.evictions if each.preemptor == job.key]
    refused_by = _refusing_budget(engine, evictions)
    reason = report.reason if report is not None else ""
    return Explanation(
        job=job.key,
        queue=job.queue,
        priority=known.priority,
        preemptible=all(task.is_preemptible for task in job.tasks.values()),
        min_member=job.min_member,
        placed_pods=known.placed_pods,
        waiting_pods=known.waiting_pods,
        satisfied=report.satisfied if report is not None else True,
        reason=reason,
        message=report.message if report is not None else "",
        would_bind=bound,
        evictions=tuple(planned(each, engine) for each in evictions),
        refused_by=refused_by,
        nodes=known.nodes,
        shares=known.shares,
        position=at_end.position,
        victims=at_end.victims,
        reservation=report.reservation if report is not None else None,
        stages=engine.report.stages.get(job.key, ()),
        not_running=known.not_running,
        kept_for_others=tuple(_kept_for_others(engine.report, job.key, reason)),
        advice=_node_advice(known.nodes, reason)
        or advice(
            # Extra pods wait for a reason of their own, while their gang is scheduled.
            (report.waits_for if report is not None and report.satisfied else reason)
            or known.not_running_reason,
            report.message if report is not None else "",
            where=changed_object(job.labels, is_group=job.key.is_group),
            min_member=0 if report is not None and report.satisfied else job.min_member,
            budget_blocks=bool(refused_by) or _is_guarded(at_end.victims),
        ),
    )


def _refusing_budget(engine: Engine, evictions: Iterable[Eviction]) -> str:
    """Return the budget that forbids all of `evictions` together; empty if none does."""
    refused = engine.cluster.budgets.count((each.task for each in evictions), {})
    return "" if refused is None else refused[1]


def _node_advice(nodes: Sequence[NodeCounts], reason: str) -> str:
    """Return the advice for pods that no node would take, even if it were empty."""
    closed = (each for each in nodes if each.node_count and not each.open_nodes)
    first = next(closed, None)
    return node_advice(first.against) if first is not None and reason in _OF_NODES else ""


def _kept_for_others(report: CycleReport, own: JobKey, reason: str) -> Iterator[KeptRoom]:
    if reason not in (JobReason.UNSCHEDULABLE, JobReason.OVER_LIMIT):
        return
    for key, stages in sorted(report.stages.items()):
        yield from (KeptRoom(key, stage) for stage in stages if key != own and stage.nodes)


def _is_guarded(victims: VictimPlan | None) -> bool:
    """Return whether disruption budgets are the only objections to the plan."""
    if victims is None or victims.objections:
        return False
    reasons = {each.reason for victim in victims.victims for each in victim.objections}
    return reasons == {BUDGET}


def planned(eviction: Eviction, engine: Engine) -> PlannedEviction:
    """Return `eviction` with the names of its objects."""
    task, job = eviction.task, engine.cluster.state.jobs.get(eviction.task.job)
    return PlannedEviction(
        action=eviction.action,
        namespace=task.namespace,
        pod=task.name,
        job=task.job,
        queue=job.queue if job is not None else "",
        node=task.node_name,
        moves_to=eviction.moves_to,
        preemptor=eviction.preemptor,
    )


def _victims(session: Session, job: Job, engine: Engine) -> VictimPlan | None:
    """Return the cheapest victims for a valid job; None for an invalid one."""
    if session.invalid(job) is not None:
        return None
    configuration = engine.configuration
    try:
        with session.reservations.lifted(lambda each: each.job is job):
            return cheapest_victims(
                session,
                job,
                configuration.actions,
                most_moved(configuration),
                engine.cluster.budgets.blocking,
            )
    finally:
        session.futures.clear()


def _node_counts(session: Session, job: Job) -> list[NodeCounts]:
    """Return the node counts of the pods of `job`, merged for pods with equal counts."""
    alike: defaultdict[Shape | Uid, list[Task]] = defaultdict(list)
    for task in session.calls.pods_in_order(job):
        filtered = session.placement.is_filtered(task.shape)
        alike[task.uid if filtered else task.shape].append(task)
    found: list[NodeCounts] = []
    for tasks in alike.values():
        counts = _counts_of(session, job, tasks)
        for number, other in enumerate(found):
            if replace(other, pod_count=counts.pod_count) == counts:
                found[number] = replace(counts, pod_count=other.pod_count + counts.pod_count)
                break
        else:
            found.append(counts)
    return found


def _counts_of(session: Session, job: Job, tasks: Sequence[Task]) -> NodeCounts:
    shape = tasks[0].shape
    finder = session.placement.finder(job)
    against = node_reasons(session, session.placement, finder, tasks[0])
    axis = session.state.axis
    requests = {
        axis.names[index]: axis.display(index, amount)
        for index, amount in total((shape.request.on_nodes,)).items()
        if axis.names[index] != "pods"
    }
    nodes = len(session.order)
    open_nodes = nodes - sum(against.values())
    gpus = axis.index(GPU_RESOURCE) in shape.request.in_queues.indices
    return NodeCounts(len(tasks), requests, nodes, open_nodes, dict(against.most_common()), gpus)
