"""The trend of a queue: on its page as a picture, and on a page of its own as a table."""

from dataclasses import dataclass
from typing import Final

from bindery.api.times import timestamp
from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.past import HistoryReader, QueuePoint

HEADINGS: Final = (
    Heading("begun", "From"),
    Heading("ended", "Until"),
    Heading("allocated", "Used", is_number=True),
    Heading("fair_share", "Fair share", is_number=True),
    Heading("requested", "Requested", is_number=True),
    Heading("waiting_gangs", "Gangs waiting", is_number=True),
)
_MOST_POINTS: Final = 500


@dataclass(frozen=True)
class QueueTrend:
    """One resource of a queue over time, the oldest slice first."""

    resource: str
    resources: tuple[str, ...]
    """The resources of which something is kept."""
    points: tuple[QueuePoint, ...]

    @property
    def newest_first(self) -> tuple["TrendRow", ...]:
        """The rows of its table."""
        return tuple(map(_row, reversed(self.points)))


@dataclass(frozen=True, slots=True)
class TrendRow:
    """The means of one time slice, in devices, cores or bytes. Times are RFC 3339."""

    begun: str
    ended: str
    allocated: float
    fair_share: float
    requested: float
    waiting_gangs: float | None


@dataclass(frozen=True)
class TrendPage:
    """The trend of one queue, as a picture and as a table."""

    name: str
    trend: QueueTrend
    since: float | None
    """The oldest time of which something is kept of any queue."""
    listing: Listing[TrendRow]


def trend_page(
    picture: Picture, name: str, asked: TableQuery, past: HistoryReader
) -> TrendPage | None:
    """Return the page of the trend of the queue `name`; None if there is no such queue to show."""
    if all(queue.name != name for queue in picture.queues):
        return None
    trend = trend_of(picture, name, asked, past)
    caption = f"Trend of {trend.resource}"
    return TrendPage(name, trend, past.since, listing(caption, HEADINGS, trend.newest_first, asked))


def trend_of(picture: Picture, name: str, asked: TableQuery, past: HistoryReader) -> QueueTrend:
    """Return the trend of the queue `name` for the resource in the query, if it is kept."""
    every = resources_of(picture)
    found = {each: tuple(past.queue_trend(name, each)) for each in every}
    kept = tuple(each for each in every if found[each])
    resource = asked.filter("resource")
    resource = resource if resource in kept else (kept or every)[0]
    return QueueTrend(resource, kept, found[resource][-_MOST_POINTS:])


def resources_of(picture: Picture) -> tuple[str, ...]:
    """Return the resources that some queue has, the usual ones first."""
    found = {name for queue in picture.queues for name in queue.resources} | set(picture.total)
    usual = [name for name in ("gpu", "cpu", "memory") if name in found]
    return (*usual, *sorted(found - set(usual))) or ("gpu",)


def _row(point: QueuePoint) -> TrendRow:
    return TrendRow(
        timestamp(point.begun),
        timestamp(point.at),
        point.allocated,
        point.fair_share,
        point.requested,
        point.waiting_gangs,
    )
