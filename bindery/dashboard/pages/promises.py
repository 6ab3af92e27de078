"""The page of reservations and promises: which room is kept, for which gang, and until when."""

from dataclasses import dataclass
from typing import Final

from bindery.api.times import timestamp
from bindery.dashboard.facts import NextStep, Picture, RoomPromise
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.scheduler.model.jobs import JobKey

HEADINGS: Final = (
    Heading("gang", "Gang"),
    Heading("queue", "Queue"),
    Heading("kind", "Kind"),
    Heading("stage", "Stage"),
    Heading("node_count", "Nodes", is_number=True),
    Heading("nodes", "Names of the nodes"),
    Heading("start", "Expected start"),
    Heading("until", "Kept until"),
    Heading("problem", "Problem"),
)
_LEAST_SPAN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PromiseRow:
    """Room that is kept for a gang."""

    gang: JobKey | None
    """None for a gang that must not be named."""
    queue: str
    kind: str
    stage: str
    node_count: int
    nodes: tuple[str, ...]
    start: str
    until: str
    in_s: float | None
    """Seconds until the start or the end; None if unknown."""
    problem: str


@dataclass(frozen=True)
class PromisesPage:
    """The kept room on a time line, and what the next cycle would do."""

    span_s: float
    """The length of the time line in seconds."""
    steps: tuple[NextStep, ...]
    listing: Listing[PromiseRow]


def promises_page(picture: Picture, asked: TableQuery) -> PromisesPage:
    """Return the page of kept room."""
    now = picture.at.timestamp()
    rows = [_row(each, now) for each in picture.promises]
    span_s = max((row.in_s or 0.0 for row in rows), default=0.0)
    return PromisesPage(
        span_s=max(span_s, _LEAST_SPAN_S),
        steps=picture.steps,
        listing=listing("Reservations and promises", HEADINGS, rows, asked),
    )


def _row(promise: RoomPromise, now: float) -> PromiseRow:
    at = promise.start if promise.start is not None else promise.until
    return PromiseRow(
        gang=promise.gang,
        queue=promise.queue,
        kind="later stage" if promise.until is not None or promise.stage else "reservation",
        stage=promise.stage,
        node_count=len(promise.nodes),
        nodes=promise.nodes,
        start=timestamp(promise.start) if promise.start is not None else "",
        until=timestamp(promise.until) if promise.until is not None else "",
        in_s=max(0.0, at - now) if at is not None else None,
        problem=promise.problem,
    )
