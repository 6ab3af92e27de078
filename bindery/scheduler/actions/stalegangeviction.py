"""stalegangeviction: evicts the remaining pods of a gang below its minimum, after a grace period.

The pods hold room and cannot work. The gang's own rule counts: minimum, roles and the tree of
sub-groups with `minSubGroup`. So a gang that does not need a sub-group is complete (KAI-Scheduler
evicts it, its issue 2208), and only the rest of that sub-group is evicted. A gang with a succeeded
pod is finishing, not stale.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bindery.api.times import timestamp
from bindery.scheduler.actions.evicting import evict, running
from bindery.scheduler.cache.staleness import Staleness
from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.memory import Memory
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit

_REASON = "its gang has had less than its minimum for too long"


class StaleGangEviction:
    """Evicts gangs that stay below their minimum. `grace_s`: default of their grace period."""

    name = "stalegangeviction"
    tries_jobs = False
    fills = False

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:  # noqa: ARG002
        """Yield the evictions of each gang after its grace period."""
        parts: list[_Part] = []
        memory = session.memory
        for job in session.state.jobs.values():
            if not job.key.is_group:  # a single pod runs or waits as a whole
                continue
            with session.guarded(job):
                parts += _stale_parts(job, memory)
        memory.note_stale([(job, name) for job, name, _ in parts])
        # Before any eviction: a part of the same job would then count as being replaced.
        found = [memory.staleness(job, name) for job, name, _ in parts]
        for (job, name, tasks), staleness in zip(parts, found, strict=True):
            grace_s = self._grace_s if job.staleness_grace_s is None else job.staleness_grace_s
            is_due = 0 <= grace_s < session.now - staleness.since
            is_spared = any(task.uid in memory.spared for task in tasks)
            # A complete gang is reported as usual, although one of its sub-groups goes.
            if not name:
                _report(session, job, _outlook(staleness, grace_s, is_due, is_spared))
            if is_due and not is_spared:
                commit = None
                with session.guarded(job):
                    commit = evict(session, job, tasks, _REASON)
                if commit is not None:
                    yield commit


_Part = tuple[Job, str, list[Task]]
"""A job, the name of a sub-group or "", and its running pods."""


def _stale_parts(job: Job, memory: Memory) -> Iterator[_Part]:
    """Yield `job` if it is below its minimum, or else its sub-groups below theirs.

    Jobs with pods that are Binding or have promised places are left out: these may complete them.
    So are parts that have lost nothing: pods that never ran leave the others as they were.
    """
    if not job.exists or job.invalid is not None or not job.placed.total:
        return
    statuses = {task.status for task in job.tasks.values()}
    if job.is_satisfied:
        # A pod that is Binding may never be bound.
        if TaskStatus.BINDING not in statuses:
            memory.note_whole(job)
        if job.tree is not None:
            yield from _stale_sub_groups(job, job.tree, memory)
        return
    later = {leaf.name for stage in job.stages for leaf in stage.group.leaves()}
    first = [task for task in job.tasks.values() if task.sub_group not in later]
    if TaskStatus.RUNNING not in statuses or _is_finishing(first):
        return
    if TaskStatus.BINDING in statuses or job.is_promised:
        return
    if memory.has_lost(job, "", first):
        yield job, "", running(job)


def _stale_sub_groups(job: Job, tree: Group, memory: Memory) -> Iterator[_Part]:
    binding = {task.sub_group for task in job.tasks.values() if task.status is TaskStatus.BINDING}
    for group in tree.all_groups():
        is_bound = binding.isdisjoint(leaf.name for leaf in group.leaves())
        if group.name and is_bound and group.is_satisfied(job.lacking):
            memory.note_whole(job, group)
    for group in gangs.optional(tree, job.lacking):
        leaves = {leaf.name for leaf in group.leaves()}
        members = [task for task in job.tasks.values() if task.sub_group in leaves]
        # A stage ends by itself; without stages, a succeeded pod anywhere means the end of all.
        if _is_finishing(members if job.stages else job.tasks.values()):
            continue
        tasks = [task for task in running(job) if task.sub_group in leaves]
        if tasks and binding.isdisjoint(leaves) and memory.has_lost(job, group.name, members):
            yield job, group.name, tasks


def _is_finishing(tasks: Iterable[Task]) -> bool:
    return any(task.status is TaskStatus.SUCCEEDED for task in tasks)


def _outlook(staleness: Staleness, grace_s: float, is_due: bool, is_spared: bool) -> str:
    """Return what happens to a gang below its minimum, as the end of a sentence."""
    if grace_s < 0:
        return ""
    if staleness.awaits_others:
        return ": some are being deleted, and it is evicted if no replacements come"
    goes_at = timestamp(staleness.since + grace_s)
    if not is_due:
        return f": it is evicted after {goes_at} if that does not change"
    if is_spared:
        return f": its grace period ended at {goes_at}, but its eviction was refused"
    return f": it is evicted, because its grace period ended at {goes_at}"


def _report(session: Session, job: Job, outlook: str) -> None:
    """Add to the refusal of `job` that it is below its minimum. `outlook`: what happens next."""
    text = f"fewer of its pods run than it needs{outlook}"
    refusal = session.refusals.get(job)
    session.refusals[job] = (
        Refusal(JobReason.BELOW_MINIMUM, text)
        if refusal is None
        else replace(refusal, message=f"{refusal.message}; {text}")
    )
    session.stale.append(job)
