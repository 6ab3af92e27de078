"""Whether a change of a PodGroup or a Queue may change a plan.

What the scheduler itself writes after a cycle must not start another cycle.
"""

from msgspec.structs import replace

from bindery.kube.objects.podgroups import PodGroup, PodGroupStatus
from bindery.kube.objects.queues import Queue, QueueStatus
from bindery.kube.objects.watched import Meta


def is_news_of_group(known: PodGroup | None, group: PodGroup) -> bool:
    """Whether a plan may depend on the difference between two versions of a PodGroup."""
    return known is None or _planned_by(known) != _planned_by(group)


def is_news_of_queue(known: Queue | None, queue: Queue) -> bool:
    """Whether a plan may depend on the difference between two versions of a Queue."""
    return known is None or _without_status(known) != _without_status(queue)


def _planned_by(group: PodGroup) -> PodGroup:
    """Return `group` with no more of its status than its queue.

    For how long it has run decides only about run time limits. Time passes for them without any
    write, so each cycle asks.
    """
    status = PodGroupStatus(queue=group.status.queue)
    return replace(group, metadata=_unversioned(group.metadata), status=status)


def _without_status(queue: Queue) -> Queue:
    return replace(queue, metadata=_unversioned(queue.metadata), status=QueueStatus())


def _unversioned(meta: Meta) -> Meta:
    return replace(meta, resource_version="")
