"""How the shares of queues differ between two plays of a cluster. Used by `rehearsal`. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from bindery.scheduler.insight.shares import ClusterShares, ResourceShare


@dataclass(frozen=True, slots=True)
class ShareChange:
    """One resource of a queue without and with what is submitted. None: there is no such queue."""

    queue: str
    resource: str
    before: ResourceShare | None
    after: ResourceShare | None


def share_changes(before: ClusterShares, after: ClusterShares) -> Iterator[ShareChange]:
    """Yield the shares that differ, in the order of the tree."""
    known = {queue.name: queue.resources for queue in before.queues}
    left = {queue.name for queue in after.queues}
    for queue in after.queues:
        for resource, share in queue.resources.items():
            old = known.get(queue.name, {}).get(resource)
            if _rounded(old) != _rounded(share) and (
                old is not None or share.requested or share.quota
            ):
                yield ShareChange(queue.name, resource, old, share)
    for name in known.keys() - left:
        for resource, share in known[name].items():
            yield ShareChange(name, resource, share, None)


def _rounded(share: ResourceShare | None) -> tuple[float | None, ...]:
    if share is None:
        return ()
    numbers = (share.quota, share.fair_share, share.allocated, share.limit)
    return tuple(None if number is None else round(number, 6) for number in numbers)
