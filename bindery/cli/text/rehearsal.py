"""The outcome of a rehearsal in lines for people. Used by `bindery whatif`."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bindery.answers.amounts import amount, listed, plural, title
from bindery.cli.text.explanation import (
    eviction_text,
    pods_by_node,
    some_lines,
    waiting_lines,
    with_zones,
)
from bindery.scheduler.insight.comeback import Fate
from bindery.scheduler.insight.rehearsal import (
    JobOutcome,
    QueueOutcome,
    RehearsalOutcome,
    RehearsedEviction,
)
from bindery.scheduler.insight.shares import ShareChange
from bindery.scheduler.model.jobs import JobKey

_FATES = {
    Fate.GONE: " and is gone: no controller creates it again",
    Fate.INDEX_FAILS: " and its index fails: evictions exceed backoffLimitPerIndex of its Job",
    Fate.JOB_FAILS: " and its Job fails: evictions exceed backoffLimit (docs/evictions.md)",
}
_SHARES = {
    "quota": "quota",
    "fair_share": "fair share",
    "allocated": "allocated",
    "requested": "requested",
    "limit": "limit",
}
"""Field of a share -> its heading."""


def outcome_lines(outcome: RehearsalOutcome, planned_by: Sequence[str] = ()) -> Iterator[str]:
    """Yield the whole answer; `planned_by`: lines about the scheduler and its configuration."""
    if outcome.settled:
        yield f"If this were submitted now, after {plural(outcome.cycles, 'cycle')}:"
    else:
        yield f"If this were submitted now, after {outcome.cycles} cycles, and still changing:"
    titles = _titles(outcome.jobs)
    for job in outcome.jobs:
        yield from _job_lines(job, titles[job.job])
    if not outcome.jobs:
        yield from _without_jobs(outcome)
    for queue in outcome.queues:
        yield from _queue_lines(queue)
    yield from _share_lines(outcome.shares)
    if outcome.evictions:
        yield from _eviction_lines(outcome.evictions, titles)
    if too := outcome.would_run_too:
        yield f"{plural(len(too), 'waiting gang')} would run too: {_names(too)}"
    if instead := outcome.would_wait_instead:
        yield f"{plural(len(instead), 'running gang')} would wait instead: {_names(instead)}"
    yield from planned_by
    yield "Nothing has been changed."


def _names(jobs: Sequence[JobKey]) -> str:
    return listed([str(job) for job in jobs])


def _titles(jobs: Sequence[JobOutcome]) -> dict[JobKey, str]:
    """Return the titles of the submitted jobs: the workload, if it has only one gang."""
    count = Counter((job.job.namespace, job.workload) for job in jobs)
    titles: dict[JobKey, str] = {}
    for job in jobs:
        kind, _, name = job.workload.partition("/")
        titles[job.job] = str(job.job)
        if job.workload:
            titles[job.job] = f"{kind} {job.job.namespace}/{name}"
        if job.workload and count[job.job.namespace, job.workload] > 1:
            titles[job.job] += f" ({job.job.name})"
    return titles


def _job_lines(job: JobOutcome, title: str) -> Iterator[str]:
    placed, count = len(job.pods), len(job.pods) + job.waiting_pods
    word = "runs" if job.runs else "waits"
    yield f"  {title} (queue {job.queue}) {word}: {placed} of {plural(count, 'pod')} placed"
    if job.runs and job.since_cycle > 1:
        yield f"    from cycle {job.since_cycle} on"
    by_node = pods_by_node([(with_zones(pod), pod.node) for pod in job.pods])
    yield from (f"    {node}: {listed(pods)}" for node, pods in by_node.items())
    for stage in job.later_stages:
        pods, ended = plural(stage.pods, "more pod"), listed(stage.after)
        yield f"    {pods} ({stage.sub_group}) after the end of {ended}: no room is kept"
    explanation = job.explanation
    if explanation is not None and explanation.reason:
        yield f"    {explanation.reason}: {explanation.message}"
        yield from (f"    {line}" for line in waiting_lines(explanation))


def _queue_lines(queue: QueueOutcome) -> Iterator[str]:
    if queue.problem:
        yield f"  queue {queue.name}: {queue.problem}"
    if not queue.over_limit:
        return
    amounts = [
        f"{amount(name, over.held)} {title(name)} of a limit of {amount(name, over.limit)}"
        for name, over in queue.over_limit.items()
    ]
    yield f"  queue {queue.name} would exceed its limit: {', '.join(amounts)}"
    yield "    A limit evicts nothing: running pods continue."
    yield "    No other pod of this queue, or of one below it, starts until it holds less."


def _without_jobs(outcome: RehearsalOutcome) -> Iterator[str]:
    """Yield the changes for other jobs, if only queues or nodes are submitted."""
    if outcome.would_run_too or outcome.would_wait_instead or outcome.evictions:
        starts, ends = len(outcome.would_run_too), len(outcome.would_wait_instead)
        evicted = plural(len(outcome.evictions), "pod")
        yield f"  {plural(starts, 'gang')} would start, {ends} would wait, {evicted} would go"
    else:
        yield "  no gang would start, wait or be evicted for it"


def _share_lines(changes: Sequence[ShareChange]) -> Iterator[str]:
    """Yield a table of the queues whose shares change, for each resource."""
    for resource in dict.fromkeys(change.resource for change in changes):
        rows = [
            (each.queue, [_change_text(each, name) for name in _SHARES])
            for each in changes
            if each.resource == resource
        ]
        width = max(len(queue) for queue, _ in rows)
        yield f"Queues that change, in {title(resource)}:"
        headings = "".join(f"{heading:>18}" for heading in _SHARES.values())
        yield f"  {'':<{width}}{headings}"
        for queue, texts in rows:
            yield f"  {queue:<{width}}" + "".join(f"{text:>18}" for text in texts)


def _change_text(change: ShareChange, field: str) -> str:
    """Return `8`, or `8 -> 4` if the field of the share changes."""
    texts = [
        "none" if share is None else amount(change.resource, getattr(share, field))
        for share in (change.before, change.after)
    ]
    return texts[0] if texts[0] == texts[1] else " -> ".join(texts)


def _eviction_lines(
    evictions: tuple[RehearsedEviction, ...], titles: Mapping[JobKey, str]
) -> Iterator[str]:
    yield "Room would be made:"
    by_preemptor: defaultdict[JobKey, list[RehearsedEviction]] = defaultdict(list)
    for rehearsed in evictions:
        by_preemptor[rehearsed.eviction.preemptor].append(rehearsed)
    for preemptor, plan in by_preemptor.items():
        yield f"  for {titles.get(preemptor, str(preemptor))}"
        yield from some_lines([f"    {eviction_text(t.eviction)}{_fate(t)}" for t in plan])


def _fate(rehearsed: RehearsedEviction) -> str:
    """Return what happens to an evicted pod that does not move."""
    if rehearsed.eviction.moves_to:
        return ""
    after = rehearsed.comeback
    if after.fate is not Fate.COMES_BACK:
        return _FATES[after.fate]
    backoff = f" after {after.after_s:.0f} s, the backoff of its Job" if after.after_s else ""
    if rehearsed.runs_again:
        return f" and comes back{backoff}" if backoff else " and runs again"
    return f" and waits again{f', created{backoff}' if backoff else ''}"
