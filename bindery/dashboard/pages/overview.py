"""The first page: the cluster at a glance, and what needs a person now."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.pages.gangs import SELECTIONS
from bindery.dashboard.pages.nodes import node_rows
from bindery.dashboard.pages.paths import gang_path, node_path, queue_path
from bindery.dashboard.pages.queues import QueueRow, row
from bindery.scheduler.model.reasons import JobReason

HEADINGS: Final = (
    Heading("kind", "Kind"),
    Heading("what", "What"),
    Heading("reason", "Reason"),
    Heading("text", "What is wrong"),
    Heading("advice", "What would help"),
)
KINDS: Final = ("Scheduler", "Misconfigured", "Sick node", "Stuck gang", "Starved queue", "Idle")
"""What needs a person, the most urgent first."""


_QUEUE_ADVICE: Final = {
    JobReason.QUEUE_DOES_NOT_EXIST.value: "Create the queue, or correct the objects that name it.",
    JobReason.QUEUE_CLOSED.value: "Open the queue (spec.state: Open) when jobs may start again.",
}


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that needs a person."""

    kind: str
    what: str
    reason: str
    text: str
    advice: str
    path: str
    """The path of its page; empty without one."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One resource of the whole cluster, in devices, cores or bytes."""

    resource: str
    total: float
    allocated: float
    kept: float
    pending: float


@dataclass(frozen=True)
class OverviewPage:
    """The cluster at a glance."""

    figures: tuple[Figure, ...]
    gangs: dict[str, int]
    """Word of a selection -> number of gangs."""
    hidden_waiting: int
    """Number of waiting gangs that must not be named."""
    nodes: dict[str, int]
    """Word of a state -> number of nodes."""
    shows_nodes: bool
    top_queues: tuple[QueueRow, ...]
    """The queues without a parent, with GPUs."""
    notes: tuple[str, ...]
    attention: dict[str, int]
    """Kind -> number of things that need a person."""
    listing: Listing[Attention]


def overview_page(picture: Picture, asked: TableQuery) -> OverviewPage:
    """Return the first page; `kind` in the query selects what needs a person."""
    found = sorted(_attention(picture), key=lambda each: KINDS.index(each.kind))
    kind = asked.filter("kind")
    chosen = [each for each in found if not kind or each.kind == kind]
    tops = [queue for queue in picture.queues if queue.depth == 0]
    counted = Counter(each.kind for each in found)
    return OverviewPage(
        figures=tuple(_figures(picture)),
        gangs={word: sum(map(it, picture.gangs)) for word, (_, it) in SELECTIONS.items()},
        hidden_waiting=sum(key is None for key in picture.order),
        nodes=dict(Counter(node.state for node in picture.once(node_rows))),
        shows_nodes=picture.shows_nodes,
        top_queues=tuple(row(q, "gpu", q.resources["gpu"]) for q in tops if "gpu" in q.resources),
        notes=picture.notes,
        attention={each: counted[each] for each in KINDS if counted[each]},
        listing=listing("Needs a person", HEADINGS, chosen, asked),
    )


def _figures(picture: Picture) -> Iterator[Figure]:
    tops = [queue for queue in picture.queues if queue.depth == 0]
    for name in ("gpu", "cpu", "memory"):
        total = picture.total.get(name, 0.0)
        if total:
            shares = [queue.resources[name] for queue in tops if name in queue.resources]
            allocated = sum(share.allocated for share in shares)
            pending = sum(max(0.0, share.requested - share.allocated) for share in shares)
            yield Figure(name, total, allocated, sum(share.kept for share in shares), pending)


def _attention(picture: Picture) -> Iterator[Attention]:
    if picture.absence:
        yield Attention(
            "Scheduler",
            "scheduler",
            "NoSchedulerLeads",
            picture.absence,
            "See whether its pods run (bindery status).",
            "",
        )
    for queue in picture.queues:
        if queue.problem:
            reason, _, text = queue.problem.partition(": ")
            path = queue_path(queue.name)
            advice = _QUEUE_ADVICE.get(reason, "Correct the Queue object.")
            yield Attention("Misconfigured", f"queue {queue.name}", reason, text, advice, path)
        share = queue.resources.get("gpu")
        if share is not None and row(queue, "gpu", share).is_starved and not queue.problem:
            text = (
                f"{queue.waiting} waiting; it holds {share.allocated:g} of the "
                f"{share.fair_share:g} GPUs of its fair share"
            )
            advice = "See why its first gang waits."
            path = queue_path(queue.name)
            yield Attention(
                "Starved queue", f"queue {queue.name}", "BelowFairShare", text, advice, path
            )
    yield from _gangs(picture)
    for node in picture.nodes:
        if node.is_sick:
            reason, _, text = node.problem.partition(": ")
            advice = "See kubectl describe node, and mend or drain the node."
            path = node_path(node.name)
            yield Attention("Sick node", f"node {node.name}", reason, text, advice, path)


def _gangs(picture: Picture) -> Iterator[Attention]:
    for gang in picture.gangs:
        if gang.is_broken:
            kind = "Misconfigured"
        elif gang.is_idle:
            kind = "Idle"
        elif gang.is_stuck:
            kind = "Stuck gang"
        else:
            continue
        path, what = gang_path(gang.key), f"gang {gang.key}"
        yield Attention(kind, what, gang.reason, gang.message, gang.advice, path)
