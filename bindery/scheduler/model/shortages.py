"""Which pods a gang below its minimum lacks, as text. Pure.

Used by the plugin gang for gangs whose pods have not come, by status/gangs.py for those without
waiting pods.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from bindery.kube.objects.watched import Node
from bindery.scheduler.model.deletions import unended_text
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.reasons import JobReason

_MOST_PARTS: Final = 5
"""Maximum number of roles and sub-groups in one text."""


def shortage(job: Job, nodes: Sequence[Node | None]) -> tuple[JobReason, str]:
    """Return why too few pods of `job` exist, as reason and text. `nodes`: by row."""
    unended = unended_text(job, nodes)
    if unended:
        return JobReason.PODS_NOT_DELETED, f"{_missing_text(job)}; {unended}"
    return JobReason.NOT_ENOUGH_PODS, _missing_text(job)


def _missing_text(job: Job) -> str:
    """Return how many pods of `job` exist, and which roles and sub-groups lack some."""
    come = job.placed.total + job.promised.total + job.waiting.total
    if come < job.min_member:
        return f"{come} of {job.min_member} required pods exist"
    parts = list(_short_parts(job))
    more = [f"{len(parts) - _MOST_PARTS} more"] if len(parts) > _MOST_PARTS else []
    exist = "1 pod exists" if come == 1 else f"{come} pods exist"
    return f"{exist}, but too few of {', '.join([*parts[:_MOST_PARTS], *more])}"


def gated_text(job: Job) -> str:
    """Return how many pods of `job` have scheduling gates."""
    return "1 pod is gated" if job.gated_count == 1 else f"{job.gated_count} pods are gated"


def _short_parts(job: Job) -> Iterator[str]:
    tallies = (job.placed, job.promised, job.waiting)
    for role, minimum in sorted(job.roles.items()):
        have = sum(tally.roles[role] for tally in tallies)
        if have < minimum:
            yield f"role {role} ({have} of {minimum})"
    for leaf in _leaves(job.tree) if job.tree is not None else ():
        lacking = job.lacking_of(leaf, *tallies)
        if lacking > 0:
            have = sum(tally.groups[leaf.name] for tally in tallies)
            yield f"sub-group {leaf.name} ({have} of {have + lacking})"


def _leaves(group: Group) -> Iterator[Group]:
    """Yield the leaves below `group` whose pods exist from the start."""
    if group.is_leaf:
        yield group
    for child in group.children:
        if not child.after:
            yield from _leaves(child)
