"""Writes an Explanation as text. Used by `gang`, and by `rehearsal` for waiting jobs.

A line's indent shows its level; the printer keeps the indent when it wraps the line.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from bindery.answers.amounts import amount, listed, ordinal, plural, short, title
from bindery.api.names import NODE_POOL_LABEL
from bindery.api.numaplacement import zones_text
from bindery.scheduler.insight.objections import Objection
from bindery.scheduler.insight.order import Position, UserTurn
from bindery.scheduler.insight.queue import QueueExplanation, WaitingJob
from bindery.scheduler.insight.ranking import Ranking
from bindery.scheduler.insight.shares import QueueShare, ResourceShare
from bindery.scheduler.insight.victims import Victim, VictimPlan
from bindery.scheduler.insight.waiting import (
    Explanation,
    KeptRoom,
    NodeCounts,
    PlannedEviction,
    PlannedPod,
)
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.reports import ReservationReport, StageReport

_SHOWN_JOBS = 5
_SHOWN_PODS = 12
_LEAST_SHOWN = 0.005
"""A plugin is left out of a table of scores if all its scores are shown as 0.00."""
_SHOWN_USERS = 5
_MOST_PART = 10.0
_LACKS_ROOM = (JobReason.UNSCHEDULABLE, JobReason.OVER_LIMIT, JobReason.FITS_NO_NODE)
_HEADINGS = ("quota", "fair share", "allocated", "requested", "limit")


def outlook_lines(explanation: Explanation, absence: str = "") -> Iterator[str]:
    """Yield the decision of the next cycle about the job.

    `absence`: the reason why there is no next cycle; empty while a scheduler leads.
    """
    cycle = "A cycle now"
    if absence and (explanation.would_bind or explanation.evictions):
        yield f"No scheduler leads: {absence}."
        cycle = "The first cycle of the next leader"
    if explanation.would_bind:
        by_node = pods_by_node([(with_zones(pod), pod.node) for pod in explanation.would_bind])
        yield f"{cycle} would place {len(explanation.would_bind)} of its pods:"
        yield from (f"  {node}: {listed(pods)}" for node, pods in by_node.items())
    if explanation.evictions:
        yield f"{cycle} would make room for it, by evicting {_pods(len(explanation.evictions))}:"
        yield from some_lines([f"  {eviction_text(each)}" for each in explanation.evictions])
        if explanation.refused_by:
            yield f"But PodDisruptionBudget {explanation.refused_by} does not allow all of it now."


def unserved_lines(unserved: str) -> Iterator[str]:
    """Yield lines that no scheduler serves a node pool, with advice."""
    yield f"{unserved[:1].upper()}{unserved[1:]}{'' if unserved.endswith('?') else '.'}"
    yield (
        f"What to do: Correct the label {NODE_POOL_LABEL} of the pods or their template, "
        "or start a scheduler for the pool (nodePools in the chart's values)."
    )


def waiting_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the reasons why the job waits: nodes, shares, turn, victims, and advice."""
    for counts in explanation.nodes:
        yield from _node_lines(counts)
    yield from _job_share_lines(explanation.shares, explanation.nodes)
    if explanation.position is not None:
        yield _position_text(explanation.position, explanation.queue)
        yield from _user_lines(explanation.position.users, explanation.queue)
    if explanation.reservation is not None:
        yield _reservation_text(explanation.reservation)
    yield from _kept_lines(explanation.kept_for_others)
    if explanation.victims is not None:
        yield from _victim_lines(explanation.victims)
    elif explanation.reason in _LACKS_ROOM:
        yield "No eviction would help."
    yield from ranking_lines(explanation.rankings)
    if explanation.advice:
        yield f"What to do: {explanation.advice}"


def stage_lines(stages: Sequence[StageReport]) -> Iterator[str]:
    """Yield the room of each of the later stages of a gang."""
    for each in stages:
        label = f"its later stage {each.stage} ({_pods(each.pods)})"
        if each.nodes:
            yield f"Room for {label} is kept on {listed(each.nodes)} {_until(each)}."
        else:
            ended = f" (until {_clock(each.until)})" if each.until is not None else ""
            yield f"No room is kept for {label}: {each.problem}{ended}."


def _until(stage: StageReport) -> str:
    if stage.until is None:
        return "until some time after the pods before it are bound"
    return f"until {_clock(stage.until)}"


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


def _kept_lines(kept: Sequence[KeptRoom]) -> Iterator[str]:
    """Yield the room that is kept for other jobs."""
    if kept:
        yield "Room is kept for later stages of other gangs:"
    yield from some_lines(
        [
            f"  {each.job}, {each.stage.stage} ({_pods(each.stage.pods)}), on "
            f"{listed(each.stage.nodes)} {_until(each.stage)}"
            for each in kept
        ]
    )


def ranking_lines(found: Sequence[Ranking]) -> Iterator[str]:
    """Yield a table of the best nodes for each of `found`, with the plugins' parts of the score."""
    for ranking in found:
        name, others = ranking.pods[0], len(ranking.pods) - 1
        more = f" and {plural(others, 'equal pod')}" if others else ""
        if not ranking.nodes:
            yield f"No node may take {name}{more}."
            continue
        bound = f", bound to {ranking.node}" if ranking.node else ""
        yield f"Best nodes for {name}{more}{bound}, by score:"
        plugins = [
            plugin
            for plugin in ranking.nodes[0].parts
            if any(abs(each.parts[plugin]) >= _LEAST_SHOWN for each in ranking.nodes)
        ]
        width = max(len("node"), *(len(each.node) for each in ranking.nodes))
        headings = "  ".join(f"{text:>{max(8, len(text))}}" for text in ("score", *plugins))
        yield f"  {'node':<{width}}  {headings}"
        for each in ranking.nodes:
            parts = [("score", each.score), *((plugin, each.parts[plugin]) for plugin in plugins)]
            numbers = "  ".join(f"{value:>{max(8, len(text))}.2f}" for text, value in parts)
            note = "  its node" if each.is_own else "" if each.fits else "  no room now"
            yield f"  {each.node:<{width}}  {numbers}{note}"


def queue_lines(explanation: QueueExplanation, absence: str = "") -> Iterator[str]:
    """Yield the state of a queue: its shares, its waiting jobs, and advice.

    `absence`: the reason why there is no next cycle; empty while a scheduler leads.
    """
    own = explanation.shares[-1]
    above = f"under {own.parent}, " if own.parent else ""
    counts = f"{own.running} of its own gangs run, {own.waiting} wait"
    yield f"Queue {explanation.queue} ({above}priority {own.priority}): {counts}."
    if explanation.below:
        yield f"Below it: {listed(explanation.below)}."
    if explanation.problem:
        yield f"Its jobs are not scheduled: {explanation.problem}"
    used = [name for name, share in own.resources.items() if share.requested or name == "gpu"]
    yield from share_lines(explanation.shares, used)
    if explanation.would_start:
        cycle = f"No scheduler leads: {absence}. The next leader" if absence else "A cycle now"
        yield f"{cycle} would start: {listed([str(key) for key in explanation.would_start])}"
    if explanation.waiting:
        yield "Waiting, in the order in which they are tried:"
        yield from some_lines(
            [f"  {_waiting_text(each, explanation.queue)}" for each in explanation.waiting]
        )
    if explanation.advice:
        yield f"What to do: {explanation.advice}"


def _waiting_text(each: WaitingJob, queue: str) -> str:
    where = "" if each.queue == queue else f" (queue {each.queue})"
    return f"{each.job}{where}: {each.reason}: {each.message}".rstrip(": ")


def eviction_text(each: PlannedEviction) -> str:
    """Return one eviction as text without a full stop."""
    where = f"moves from {each.node} to {each.moves_to}" if each.moves_to else f"leaves {each.node}"
    return f"{each.action}: {each.namespace}/{each.pod} {where} (queue {each.queue})"


def some_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield `lines`, or the first of them and the number of the others."""
    yield from lines[:_SHOWN_PODS]
    if len(lines) > _SHOWN_PODS:
        indent = " " * (len(lines[0]) - len(lines[0].lstrip(" ")))
        yield f"{indent}and {len(lines) - _SHOWN_PODS} more; -o json names them all"


def with_zones(pod: PlannedPod) -> str:
    """Return the name of `pod`, with its expected NUMA zones."""
    return f"{pod.name} ({zones_text(list(pod.zones))})" if pod.zones else pod.name


def pods_by_node(pods: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Return node -> pods of (pod, node) pairs, nodes by name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for pod, node in pods:
        found[node].append(pod)
    return {node: found[node] for node in sorted(found)}


def _node_lines(counts: NodeCounts) -> Iterator[str]:
    count = counts.pod_count
    pods = "its pod that waits" if count == 1 else f"one of its {count} equal pods that wait"
    asked = ", ".join(f"{value} {short(name)}" for name, value in counts.requests.items())
    yield (
        f"Nodes that would take {pods} ({asked or 'no requests'}): "
        f"{counts.open_nodes} of {counts.node_count}"
    )
    yield from (f"  {count:>6}  {reason}" for reason, count in counts.against.items())


def _job_share_lines(shares: Sequence[QueueShare], nodes: Sequence[NodeCounts]) -> Iterator[str]:
    """Yield a table for each relevant resource.

    These are GPUs if the job requests GPUs, else all requested resources; and resources over a
    limit.
    """
    asked = {short(name) for counts in nodes for name in counts.requests}
    if any(counts.counts_gpus for counts in nodes):
        over = sorted(
            name for name in asked - {"gpu"} if any(_is_over(each, name) for each in shares)
        )
        yield from share_lines(shares, ["gpu", *over])
    else:
        yield from share_lines(shares, sorted(asked))


def _is_over(queue: QueueShare, resource: str) -> bool:
    share = queue.resources.get(resource)
    return share is not None and share.limit is not None and share.requested > share.limit


def share_lines(shares: Sequence[QueueShare], resources: Sequence[str]) -> Iterator[str]:
    """Yield a table of a queue and its ancestors for each of `resources`."""
    for resource in resources:
        rows = [
            ("  " * share.depth + share.name, _amounts(resource, share.resources[resource]))
            for share in shares
            if resource in share.resources
        ]
        where = "Its queue" if len(rows) == 1 else "Its queue and those above it"
        yield f"{where}, in {title(resource)}:"
        name_width = max(len(name) for name, _ in rows)
        yield f"  {'':<{name_width}}  {'  '.join(f'{text:>10}' for text in _HEADINGS)}"
        for name, amounts in rows:
            yield f"  {name:<{name_width}}  {'  '.join(f'{text:>10}' for text in amounts)}"


def _amounts(resource: str, share: ResourceShare) -> list[str]:
    columns = (share.quota, share.fair_share, share.allocated, share.requested, share.limit)
    return [amount(resource, column) for column in columns]


def _position_text(place: Position, queue: str) -> str:
    if place.of == 1:
        return "Its turn: nothing else waits."
    ahead = [str(key) for key in place.ahead]
    rest = place.place - 1 - len(ahead)
    before = ""
    if ahead:
        verb = "come" if place.place > 2 else "comes"
        before = f"; before it {verb} {', '.join(ahead)}{f' and {rest} more' if rest else ''}"
    return (
        f"Its turn: {ordinal(place.place)} of {place.of} that wait, "
        f"{ordinal(place.place_in_queue)} of {place.of_queue} in queue {queue}{before}."
    )


def _user_lines(users: Sequence[UserTurn], queue: str) -> Iterator[str]:
    """Yield the amounts that users of the queue hold; nothing without fairness between users."""
    if not users:
        return
    shown = [*users[:_SHOWN_USERS], *(each for each in users[_SHOWN_USERS:] if each.is_own)]
    texts = [f"{_user_name(each)} {_percent(each.part)}" for each in shown]
    rest = len(users) - len(texts)
    listing = ", ".join(texts) + (f" and {rest} more" if rest else "")
    order = "the one that holds least comes first"
    yield f"Users of queue {queue} take turns; {order}: {listing}."


def _user_name(turn: UserTurn) -> str:
    name = turn.user or "jobs without a user"
    return f"{name} (its own)" if turn.is_own else name


def _percent(part: float) -> str:
    """Return a part of a queue's share as text; very large for a queue without a share."""
    return f"{part:.0%}" if part <= _MOST_PART else "more than its share"


def _reservation_text(kept: ReservationReport) -> str:
    start = "its start time is unknown"
    if kept.start is not None:
        start = f"it is expected to start at {_clock(kept.start)}"
    return f"Room is kept for it on {listed(kept.nodes)}; {start}."


def _victim_lines(plan: VictimPlan) -> Iterator[str]:
    count, killed = plan.pod_count, plan.killed_pods
    verb = "were evicted" if killed == count else "moved" if not killed else "were evicted or moved"
    yield f"It would fit if {_pods(count)} {verb}:"
    by_job: defaultdict[JobKey, list[Victim]] = defaultdict(list)
    for victim in plan.victims:
        by_job[victim.job].append(victim)
    for job, victims in list(by_job.items())[:_SHOWN_JOBS]:
        yield f"  {job} (queue {victims[0].queue}, priority {victims[0].priority})"
        pods = [pod for victim in victims for pod in victim.pods]
        for node, names in pods_by_node([(pod.name, pod.node) for pod in pods]).items():
            yield f"    on {node}: {listed(names)}"
        distinct: dict[tuple[str, str], Objection] = {}
        for each in (each for victim in victims for each in victim.objections):
            distinct.setdefault((each.action, each.reason), each)  # the first one is enough
        yield from (f"    {_objection_text(each)}" for each in distinct.values())
    if len(by_job) > _SHOWN_JOBS:
        yield f"  and {plural(len(by_job) - _SHOWN_JOBS, 'more job')}; -o json names them all"
    if plan.objections:
        yield from (_objection_text(each, "But ") for each in plan.objections)
    elif not any(victim.objections for victim in plan.victims):
        yield "No rule forbids it: a later cycle may do it."


def _objection_text(each: Objection, prefix: str = "") -> str:
    return f"{prefix}{each.action} is forbidden: {each.message}."


def _pods(count: int) -> str:
    return plural(count, "pod")
