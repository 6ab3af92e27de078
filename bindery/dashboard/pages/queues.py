"""The page of all queues as a tree with bars, and the page of one queue."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.pages.gangs import GangRow, gang_listing, waiting_first
from bindery.dashboard.pages.trend import QueueTrend, resources_of, trend_of
from bindery.dashboard.past import HistoryReader
from bindery.scheduler.insight.shares import QueueShare, ResourceShare

HEADINGS: Final = (
    Heading("name", "Queue"),
    Heading("allocated", "Used", is_number=True),
    Heading("fair_share", "Fair share", is_number=True),
    Heading("quota", "Quota", is_number=True),
    Heading("limit", "Limit", is_number=True),
    Heading("borrowed", "Borrowed", is_number=True),
    Heading("pending", "Waiting", is_number=True),
    Heading("kept", "Kept", is_number=True),
    Heading("running", "Gangs running", is_number=True),
    Heading("waiting", "Gangs waiting", is_number=True),
    Heading("problem", "Problem"),
)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue with one resource, in devices, cores or bytes. None: unlimited."""

    name: str
    parent: str
    depth: int
    priority: int
    resource: str
    allocated: float
    """Held by pods of the queue and all queues below."""
    fair_share: float
    quota: float | None
    limit: float | None
    borrowed: float
    """The part of what it holds that is beyond its quota."""
    pending: float
    """What its waiting pods request."""
    kept: float
    running: int
    waiting: int
    problem: str
    is_starved: bool
    """Whether gangs wait although it holds less than its fair share."""


@dataclass(frozen=True)
class QueuesPage:
    """All queues, for one resource."""

    resource: str
    resources: tuple[str, ...]
    """The resources that can be chosen."""
    total: float
    scale: float
    """The amount of a full bar."""
    listing: Listing[QueueRow]
    shows_all: bool
    """Whether these are all queues, or those of the person's gangs."""


@dataclass(frozen=True)
class QueuePage:
    """One queue."""

    name: str
    parents: tuple[str, ...]
    """The queues above it, from the top down."""
    below: tuple[str, ...]
    problem: str
    resources: tuple[QueueRow, ...]
    trend: QueueTrend
    listing: Listing[GangRow]


def queues_page(picture: Picture, asked: TableQuery) -> QueuesPage:
    """Return the page of all queues."""
    names = resources_of(picture)
    resource = asked.filter("resource")
    resource = resource if resource in names else names[0]
    rows = list(_rows(picture, resource))
    total = picture.total.get(resource, 0.0)
    most = [max(row.allocated, row.fair_share, row.quota or 0.0) for row in rows]
    return QueuesPage(
        resource=resource,
        resources=names,
        total=total,
        scale=max([total, *most, 1e-9]),
        listing=listing(f"Queues by {resource}", HEADINGS, rows, asked),
        shows_all=picture.shows_queues,
    )


def queue_page(
    picture: Picture, name: str, asked: TableQuery, past: HistoryReader
) -> QueuePage | None:
    """Return the page of the queue `name`; None if there is none that may be shown."""
    by_name = {queue.name: queue for queue in picture.queues}
    queue = by_name.get(name)
    if queue is None:
        return None
    gangs = [each for each in picture.gangs if each.queue == name]
    below = tuple(each.name for each in picture.queues if each.parent == name)
    return QueuePage(
        name=name,
        parents=tuple(_parents(by_name, queue)),
        below=below,
        problem=queue.problem,
        resources=tuple(
            row(queue, resource, share)
            for resource, share in queue.resources.items()
            if resource in ("gpu", "cpu", "memory") or share.allocated or share.requested
        ),
        trend=trend_of(picture, name, asked, past),
        listing=gang_listing(picture, waiting_first(picture, gangs), asked),
    )


def row(queue: QueueShare, resource: str, share: ResourceShare) -> QueueRow:
    """Return one resource of a queue."""
    pending = max(0.0, share.requested - share.allocated)
    return QueueRow(
        name=queue.name,
        parent=queue.parent or "",
        depth=queue.depth,
        priority=queue.priority,
        resource=resource,
        allocated=share.allocated,
        fair_share=share.fair_share,
        quota=share.quota,
        limit=share.limit,
        borrowed=max(0.0, share.allocated - share.quota) if share.quota is not None else 0.0,
        pending=pending,
        kept=share.kept,
        running=queue.running,
        waiting=queue.waiting,
        problem=queue.problem,
        is_starved=pending > 0 and queue.waiting > 0 and share.allocated + 1e-6 < share.fair_share,
    )


def _rows(picture: Picture, resource: str) -> Iterator[QueueRow]:
    nothing = ResourceShare(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None)
    for queue in picture.queues:
        yield row(queue, resource, queue.resources.get(resource, nothing))


def _parents(by_name: dict[str, QueueShare], queue: QueueShare) -> list[str]:
    """Return the queues above `queue`; of a cycle of parents each once."""
    found: list[str] = []
    parent = queue.parent
    while parent is not None and parent not in found and parent in by_name:
        found.insert(0, parent)
        parent = by_name[parent].parent
    return found
