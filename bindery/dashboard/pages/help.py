"""The page about one waiting gang: which nodes are closed to it, and which gangs are in the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.pages.gangs import GangRow, gang_row
from bindery.dashboard.pages.queues import QueueRow, row
from bindery.dashboard.rights import Rights
from bindery.dashboard.seen import reduced
from bindery.scheduler.insight.objections import Objection
from bindery.scheduler.insight.victims import VictimPlan
from bindery.scheduler.insight.waiting import Explanation
from bindery.scheduler.model.jobs import JobKey

HEADINGS: Final = (
    Heading("gang", "Gang in the way"),
    Heading("queue", "Queue"),
    Heading("priority", "Priority", is_number=True),
    Heading("pods", "Pods", is_number=True),
    Heading("moves", "Would move", is_number=True),
    Heading("protection", "What protects it"),
)


@dataclass(frozen=True, slots=True)
class ClosedNodes:
    """For some equal pods of the gang: the nodes that would take one, and why the others do not."""

    pods: int
    requests: dict[str, str]
    nodes: int
    open_nodes: int
    against: dict[str, int]
    """Reason -> number of nodes."""


@dataclass(frozen=True, slots=True)
class InTheWay:
    """A gang whose pods would have to leave. None: one that must not be named."""

    gang: JobKey | None
    queue: str
    priority: int
    pods: int
    moves: int
    """Number of its pods with another place."""
    protection: tuple[str, ...]
    """Why no action evicts it."""


@dataclass(frozen=True)
class HelpPage:
    """What keeps one gang waiting, and what would help."""

    gang: GangRow
    advice: str
    closed: tuple[ClosedNodes, ...]
    queues: tuple[QueueRow, ...]
    """Its queue and those above it by GPUs, from the top down; none without the right."""
    protection: tuple[str, ...]
    """The objections to the whole plan."""
    age_s: float
    """Seconds since this answer was planned."""
    listing: Listing[InTheWay]


@dataclass(frozen=True)
class AskedPage:
    """A gang for which the answer is not there yet."""

    gang: JobKey
    asked_s: float
    """Seconds since the question was asked."""
    last_s: float
    """How long the last plan of this cluster took."""


def help_page(
    picture: Picture, explained: Explanation, age_s: float, query: TableQuery, rights: Rights
) -> HelpPage | None:
    """Return the page for the gang of `explained`; None if it must not be shown.

    `age_s`: seconds since `explained` was planned.
    """
    gang = picture.gang_by_key.get(explained.job)
    if gang is None:
        return None
    plan = explained.victims
    rows = list(_in_the_way(plan, rights)) if plan is not None else []
    queues = explained.shares if rights.queues else ()
    return HelpPage(
        gang=gang_row(picture, gang),
        advice=reduced(explained.advice, rights) or gang.advice,
        closed=tuple(
            ClosedNodes(
                each.pod_count,
                dict(each.requests),
                each.node_count,
                each.open_nodes,
                {reduced(why, rights): count for why, count in each.against.items()},
            )
            for each in explained.nodes
        ),
        queues=tuple(row(q, "gpu", q.resources["gpu"]) for q in queues if "gpu" in q.resources),
        protection=_texts(plan.objections, rights) if plan is not None else (),
        age_s=age_s,
        listing=listing("Gangs in the way", HEADINGS, rows, query),
    )


def _in_the_way(plan: VictimPlan, rights: Rights) -> Iterator[InTheWay]:
    for victim in plan.victims:
        is_shown = rights.sees(victim.job.namespace)
        yield InTheWay(
            gang=victim.job if is_shown else None,
            queue=victim.queue if is_shown or rights.queues else "",
            priority=victim.priority,
            pods=len(victim.pods),
            moves=sum(bool(pod.moves_to) for pod in victim.pods),
            # Of others, a text could have more than the names that `reduced` knows.
            protection=_texts(victim.objections, rights) if is_shown else (),
        )


def _texts(objections: tuple[Objection, ...], rights: Rights) -> tuple[str, ...]:
    texts = (f"{each.action}: {each.reason}: {each.message}" for each in objections)
    return tuple(dict.fromkeys(reduced(text, rights) for text in texts))
