"""Answer `bindery explain`: the reason a gang waits, the nodes that do not fit, what to do.

Of a queue: its shares, and what waits in it.

`sources` reads the cluster, `bindery.scheduler.insight` asks the engine; this module puts the
answer together.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import typer

from bindery.cli.errors import CommandError
from bindery.cli.evictionsshown import GangEviction, evicted_for, eviction_lines, eviction_of
from bindery.cli.explaintext import (
    outlook_lines,
    queue_lines,
    ranking_lines,
    some_lines,
    stage_lines,
    unserved_lines,
    waiting_lines,
)
from bindery.cli.listings import request_rows, scheduled_condition
from bindery.cli.options import Format, Origin
from bindery.cli.ownview import explain_own
from bindery.cli.peoplenames import PeopleNames
from bindery.cli.source import Source
from bindery.cli.sources import of_pool, read_source
from bindery.cli.subjects import Subject, named_queue, subject
from bindery.cli.tables import print_lines, working
from bindery.cli.wire import dump, to_wire
from bindery.cli.writtenstate import are_needed, state_lines, statements_about
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects import Condition, Pod
from bindery.kube.snapshot import ClusterSnapshot, is_bound
from bindery.scheduler.insight.advice import advice
from bindery.scheduler.insight.queue import explain_queue
from bindery.scheduler.insight.waiting import Explanation
from bindery.scheduler.insight.waiting import explain as explain_job
from bindery.scheduler.model.reasons import JobReason


def answer(context: typer.Context, origin: Origin, about: tuple[str, str], output: Format) -> None:
    """Print the state of an object; `about`: its name and namespace.

    Raises:
        CommandError: there is no such object, or it is not planned.
    """
    try:
        with working("reading the cluster"):
            source = read_source(context, origin, with_jobs=True)
    except ForbiddenError as error:
        if not explain_own(context, about, output, error):
            raise
        return
    queue = named_queue(source.snapshot, about[0])
    if queue is not None:
        with working("planning in memory"):
            stands = explain_queue(source.world(), queue.metadata.name)
        lines = [*queue_lines(stands, source.absence), *source.lines]
        _print(output, PeopleNames(source.snapshot.groups).lines(lines), source.described(stands))
        return
    found = subject(source.snapshot, *about)
    source = of_pool(context, origin, source, found.node_pool)
    with working("planning in memory"):
        now = source.now if origin.file is not None else datetime.now(UTC)
        if output is Format.TEXT:
            lines, said = [*describe(source, found, now), *source.lines], None
            lines = list(PeopleNames(source.snapshot.groups).lines(lines))
        else:
            lines, said = [], _for_programs(source, found, now)
    if said is None and output is not Format.TEXT:
        name = source.configuration.scheduler_name
        raise CommandError(f"{found.key} is not planned by {name}")
    _print(output, lines, said)


def _print(output: Format, lines: Iterable[str], answer: object) -> None:
    if output is Format.TEXT:
        print_lines(lines)
    else:
        typer.echo(dump(answer, output), nl=False)


def describe(source: Source, about: Subject, now: datetime) -> list[str]:
    """Return the answer, line by line."""
    lines = state_lines(source.snapshot, about, now)
    if source.unserved:
        lines += [*unserved_lines(source.unserved)]
    ours = source.configuration.scheduler_name
    if about.pod is not None and about.pod.spec.scheduler_name != ours:
        scheduler = about.pod.spec.scheduler_name or "default-scheduler"
        return [*lines, f"It is planned by {scheduler}, not by {ours}."]
    explained = _asked(source, about)
    said = scheduled_condition(about.group) if about.group is not None else None
    if explained is not None:
        others = _evicted_for(source, about, explained.queue)
        shown = eviction_lines(eviction_of(about.group), explained.queue, others)
        lines += some_lines(list(shown))
        lines += stage_lines(explained.stages)
        is_said = said is not None and explained.not_running in said.message
        lines += [f"{explained.not_running}."] if explained.not_running and not is_said else []
    return lines + list(_why(explained, about, source.absence))


def _asked(source: Source, about: Subject) -> Explanation | None:
    pod = about.pod.metadata.name if about.pod is not None else ""
    return explain_job(source.world(), about.key, pod)


def _evicted_for(source: Source, about: Subject, queue: str) -> list[GangEviction]:
    owner = about.group or about.pod
    since = owner.metadata.creation_timestamp if owner is not None else None
    return evicted_for(about.key, queue, since or "", source.snapshot.groups)


def _for_programs(source: Source, about: Subject, now: datetime) -> object:
    """Return the answer with the Statements of `about`; None if it is not planned."""
    explained = _asked(source, about)
    if explained is None:
        return None
    found = ClusterSnapshot(requests=tuple(statements_about(source.snapshot, about)))
    evictions = {
        "evicted": to_wire(eviction_of(about.group)),
        "evictedForIt": to_wire(_evicted_for(source, about, explained.queue)),
    }
    rows = request_rows(found, now)
    return source.described({**to_wire(explained), **evictions, "requests": rows})


def _why(explained: Explanation | None, about: Subject, absence: str) -> Iterator[str]:
    if about.group is None and about.pod is not None and (waits := _waits_for_group(about.pod)):
        yield f"The scheduler says: {waits.reason}: {waits.message}"
        yield from _advice(waits.reason, about, min_member=1)
        return
    said = scheduled_condition(about.group) if about.group is not None else None
    is_empty = explained is not None and not explained.placed_pods + explained.waiting_pods
    if explained is not None and is_empty and about.key.is_group:
        yield from _missing_lines(explained, about, said)
        return
    if explained is None or not explained.reason:
        yield "None of its pods waits for the scheduler."
        if said is not None and said.status != "True":
            yield f"The scheduler says: {said.reason}: {said.message}"
            least = about.group.spec.min_member if about.group is not None else 1
            yield from _advice(said.reason, about, min_member=least)
        elif explained is not None and explained.advice:
            yield f"What to do: {explained.advice}"
        yield from ranking_lines(explained.rankings if explained is not None else ())
        return
    scheduler_waits = said is not None and said.status != "True"
    if said is not None and scheduler_waits:
        yield f"The scheduler says: {said.reason}: {said.message}"
    yield from outlook_lines(explained, absence)
    if explained.would_bind:
        if not scheduler_waits and not absence:
            yield "If nothing happens, check that the scheduler runs."
        yield from ranking_lines(explained.rankings)
        return
    if said is None or said.message != explained.message:
        yield f"Held by: {explained.reason}: {explained.message}".rstrip(": ")
    yield from waiting_lines(explained)


def _waits_for_group(pod: Pod) -> Condition | None:
    """Return the condition of a pod that the scheduler leaves alone until a PodGroup selects it.

    Whether it does is in its configuration, which is not read here.
    """
    if is_bound(pod):
        return None
    reasons = {each.reason: each for each in pod.status.conditions or () if each.status == "False"}
    return reasons.get(JobReason.WAITING_FOR_GROUP)


def _missing_lines(explained: Explanation, about: Subject, said: Condition | None) -> Iterator[str]:
    """Yield the state of a gang without waiting or running pods."""
    if said is not None:
        yield f"The scheduler says: {said.reason}: {said.message}".rstrip(": ")
    elif not explained.not_running:
        yield f"It has no pods yet: at least {are_needed(explained.min_member)}."
    problem = explained.shares[-1].problem
    if problem:
        yield f"Its queue: {problem}"
        reason = problem.partition(":")[0]
        yield from _advice(reason, about, min_member=0)
    elif explained.advice:
        yield f"What to do: {explained.advice}"
    elif said is not None and said.status != "True":
        yield from _advice(said.reason, about, min_member=explained.min_member)


def _advice(reason: str, about: Subject, *, min_member: int) -> Iterator[str]:
    text = advice(reason, where=about.changed, min_member=min_member, budget_blocks=False)
    if text:
        yield f"What to do: {text}"
