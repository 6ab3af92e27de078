"""The page of a gang's past: its plans, evictions and waits, the newest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bindery.api.times import timestamp
from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.past import HistoryReader
from bindery.scheduler.model.jobs import JobKey

HEADINGS: Final = (
    Heading("begun", "From"),
    Heading("ended", "Until"),
    Heading("kind", "What"),
    Heading("reason", "Reason or outcome"),
    Heading("times", "Times", is_number=True),
    Heading("pods", "Pods", is_number=True),
    Heading("waited_s", "Waited, seconds", is_number=True),
    Heading("claimant", "For gang"),
    Heading("claimant_queue", "For queue"),
    Heading("nodes", "Nodes"),
    Heading("message", "Message"),
)
PLAN: Final = "Plan"
EVICTION: Final = "Eviction"
WAIT: Final = "Wait"


@dataclass(frozen=True, slots=True)
class PastRow:
    """One thing that happened to a gang, or several equal ones. Times are RFC 3339."""

    begun: str
    ended: str
    """Empty if it goes on."""
    kind: str
    """`PLAN`, `EVICTION` or `WAIT`."""
    reason: str
    """What became of a plan, the action that evicted, or why the gang waited."""
    times: int
    pods: int | None
    waited_s: float | None
    """Of a wait: how long it was. Of a plan: how long the gang had waited before it."""
    claimant: JobKey | None
    """The gang that an eviction was for; None if it is not known, or must not be named."""
    claimant_queue: str
    nodes: tuple[str, ...]
    """Some of the nodes of a plan."""
    more_nodes: int
    """How many further nodes it had, at least."""
    message: str


@dataclass(frozen=True)
class PastPage:
    """The past of one gang, which may no longer exist."""

    key: JobKey
    exists: bool
    since: float | None
    """The oldest time of which something is kept of any gang."""
    listing: Listing[PastRow]


def past_page(
    picture: Picture, key: JobKey, asked: TableQuery, past: HistoryReader
) -> PastPage | None:
    """Return the page of the past of `key`; None if there is no gang and no past to show."""
    rows, exists = past_rows(key, past), key in picture.gang_by_key
    if not rows and not exists:
        return None
    return PastPage(key, exists, past.since, listing("Past", HEADINGS, rows, asked))


def past_rows(key: JobKey, past: HistoryReader) -> list[PastRow]:
    """Return what is kept of the gang `key`, the newest first."""
    return sorted(_rows(key, past), key=lambda row: (row.begun, row.ended), reverse=True)


def _rows(key: JobKey, past: HistoryReader) -> Iterator[PastRow]:
    for plan in past.plans(key):
        yield PastRow(
            begun=timestamp(plan.at),
            ended=timestamp(plan.ended),
            kind=PLAN,
            reason=plan.outcome,
            times=plan.times,
            pods=plan.pods,
            waited_s=plan.waited_s,
            claimant=None,
            claimant_queue="",
            nodes=plan.nodes,
            more_nodes=max(0, plan.node_count - len(plan.nodes)) if plan.nodes else 0,
            message="",
        )
    for each in past.evictions_of(key):
        yield PastRow(
            begun=timestamp(each.begun),
            ended=timestamp(each.at),
            kind=EVICTION,
            reason=each.action,
            times=1,
            pods=each.pods,
            waited_s=None,
            claimant=each.claimant,
            claimant_queue=each.claimant_queue,
            nodes=(),
            more_nodes=0,
            message=each.message,
        )
    for wait in past.waits(key):
        yield PastRow(
            begun=timestamp(wait.begun),
            ended=timestamp(wait.ended) if wait.ended is not None else "",
            kind=WAIT,
            reason=wait.reason,
            times=wait.times,
            pods=None,
            waited_s=wait.seconds,
            claimant=None,
            claimant_queue="",
            nodes=(),
            more_nodes=0,
            message=wait.message,
        )
