"""The page of gangs: which wait, why, in which place, and what would help."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, islice
from typing import Final

from bindery.api.times import age, seconds
from bindery.dashboard.facts import GangFact, Picture
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.scheduler.model.jobs import JobKey

HEADINGS: Final = (
    Heading("namespace", "Namespace"),
    Heading("name", "Gang"),
    Heading("queue", "Queue"),
    Heading("state", "State"),
    Heading("bound", "Bound", is_number=True),
    Heading("least", "Minimum", is_number=True),
    Heading("pods", "Pods", is_number=True),
    Heading("place", "Place", is_number=True),
    Heading("reason", "Reason"),
    Heading("message", "Message"),
    Heading("advice", "What would help"),
    Heading("age_s", "Age", is_number=True),
)
SELECTIONS: Final[Mapping[str, tuple[str, Callable[[GangFact], bool]]]] = {
    "waiting": ("Waiting", lambda gang: gang.waits),
    "broken": ("Needs a correction", lambda gang: gang.is_broken),
    "stuck": ("Pods do not run", lambda gang: gang.is_stuck),
    "idle": ("GPUs unused", lambda gang: gang.is_idle),
    "all": ("All", lambda _: True),
}
"""Word in the address -> the title of the selection, and its gangs."""
_SHOWN_AHEAD: Final = 5


@dataclass(frozen=True, slots=True)
class Ahead:
    """The gangs before a gang in the order of serving."""

    count: int
    first: tuple[JobKey, ...]
    """The first of them with names that may be shown."""
    others: int
    """Number of them without such a name."""


@dataclass(frozen=True, slots=True)
class GangRow:
    """One gang."""

    key: JobKey
    namespace: str
    name: str
    queue: str
    state: str
    bound: int
    running: int
    least: int
    pods: int
    place: int | None
    """Its place in the order of serving; None if it does not wait for its turn."""
    of: int
    ahead: Ahead | None
    binds: int
    """Number of its pods that the next cycle would bind."""
    reason: str
    message: str
    advice: str
    age: str
    age_s: int
    workload: str
    is_broken: bool
    is_idle: bool


@dataclass(frozen=True)
class GangsPage:
    """The selected gangs."""

    shown: str
    """The word of the selection."""
    counts: dict[str, int]
    """Word of a selection -> number of gangs."""
    queues: tuple[str, ...]
    listing: Listing[GangRow]
    hidden_waiting: int
    """Number of waiting gangs that must not be named."""


def gangs_page(picture: Picture, asked: TableQuery) -> GangsPage:
    """Return the page of gangs."""
    shown = asked.filter("show")
    shown = shown if shown in SELECTIONS else "waiting"
    _, takes = SELECTIONS[shown]
    queue, namespace = asked.filter("queue"), asked.filter("namespace")
    found = [
        gang
        for gang in picture.gangs
        if takes(gang)
        and (not queue or gang.queue == queue)
        and (not namespace or gang.key.namespace == namespace)
    ]
    if shown == "waiting":
        found = waiting_first(picture, found)
    return GangsPage(
        shown=shown,
        counts={word: sum(map(it, picture.gangs)) for word, (_, it) in SELECTIONS.items()},
        queues=tuple(sorted({gang.queue for gang in picture.gangs})),
        listing=gang_listing(picture, found, asked),
        hidden_waiting=sum(key is None for key in picture.order),
    )


def waiting_first(picture: Picture, gangs: Iterable[GangFact]) -> list[GangFact]:
    """Return `gangs` in the order of serving; gangs without a place come last, by name."""
    last = len(picture.order) + 1
    return sorted(gangs, key=lambda gang: (picture.place_of.get(gang.key, last), gang.key))


def gang_listing(
    picture: Picture, gangs: Iterable[GangFact], asked: TableQuery
) -> Listing[GangRow]:
    """Return the page of a table of `gangs`."""
    rows = [gang_row(picture, gang) for gang in gangs]
    return listing("Gangs", HEADINGS, rows, asked)


def gang_row(picture: Picture, gang: GangFact) -> GangRow:
    """Return the row of `gang`, which is made once for each picture."""
    known = picture.once(_known_rows)
    if gang.key not in known:
        known[gang.key] = _row(picture, gang)
    return known[gang.key]


def _known_rows(_: Picture) -> dict[JobKey, GangRow]:
    return {}


def _row(picture: Picture, gang: GangFact) -> GangRow:
    place = picture.place_of.get(gang.key)
    return GangRow(
        key=gang.key,
        namespace=gang.key.namespace,
        name=gang.key.name,
        queue=gang.queue,
        state=gang.state,
        bound=gang.bound,
        running=gang.running,
        least=gang.least,
        pods=len(gang.pods),
        place=place,
        of=len(picture.order),
        ahead=ahead_of(picture, place) if place is not None else None,
        binds=picture.binds_of.get(gang.key, 0),
        reason=gang.reason,
        message=gang.message,
        advice=gang.advice,
        age=age(gang.created, picture.at),
        age_s=_age_s(gang.created, picture.at),
        workload=gang.workload,
        is_broken=gang.is_broken,
        is_idle=gang.is_idle,
    )


def ahead_of(picture: Picture, place: int) -> Ahead:
    """Return the gangs before the one at `place`."""
    first, hidden = picture.once(_beginning)
    return Ahead(place - 1, tuple(key for at, key in first if at < place), hidden[place - 1])


def _beginning(picture: Picture) -> tuple[list[tuple[int, JobKey]], list[int]]:
    """Return the first gangs of the order with their places, and the numbers of gangs without a
    name among the first none, one, two and so on.
    """
    named = ((at, key) for at, key in enumerate(picture.order, 1) if key is not None)
    hidden = accumulate((key is None for key in picture.order), initial=0)
    return list(islice(named, _SHOWN_AHEAD)), list(hidden)


def _age_s(created: str | None, now: datetime) -> int:
    at = seconds(created)
    return max(0, int(now.timestamp() - at)) if at is not None else 0
