"""The page of `whatif`: what would happen if a manifest were submitted now.

The plan sees the whole cluster; the answer names only what the person may see.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.dashboard.rights import Rights
from bindery.dashboard.seen import reduced
from bindery.scheduler.insight.rehearsal import JobOutcome, RehearsalOutcome, RehearsedEviction
from bindery.scheduler.model.jobs import JobKey

HEADINGS: Final = (
    Heading("job", "Gang"),
    Heading("workload", "Workload"),
    Heading("queue", "Queue"),
    Heading("runs", "Runs"),
    Heading("placed", "Pods placed", is_number=True),
    Heading("waiting", "Pods waiting", is_number=True),
    Heading("nodes", "Nodes"),
    Heading("reason", "Reason"),
    Heading("message", "Message"),
    Heading("advice", "What would help"),
)


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """The outcome for one submitted gang."""

    job: JobKey
    workload: str
    queue: str
    runs: bool
    placed: int
    waiting: int
    nodes: tuple[str, ...]
    reason: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class LeavingPods:
    """Pods that would leave their nodes."""

    action: str
    gang: JobKey | None
    """None for gangs that must not be named."""
    pods: int
    moves: int
    """Number of them that move to another node."""
    runs_again: int
    """Number of them that run again at the end."""


@dataclass(frozen=True)
class WhatifPage:
    """The form, and the answer if a manifest was submitted."""

    namespaces: tuple[str, ...]
    """The namespaces that can be chosen."""
    namespace: str
    manifest: str
    problem: str = ""
    """Why there is no answer."""
    asked_s: float | None = None
    """Seconds since a question without an answer was asked; None: there is none."""
    last_s: float = 0.0
    """How long the last plan of this cluster took."""
    is_answer: bool = False
    runs: bool = False
    """Whether all of it would run."""
    settled: bool = True
    cycles: int = 0
    notes: tuple[str, ...] = ()
    leaving: tuple[LeavingPods, ...] = ()
    too: tuple[JobKey, ...] = ()
    """Other gangs that would run only with the submission."""
    too_others: int = 0
    instead: tuple[JobKey, ...] = ()
    """Other gangs that would wait instead."""
    instead_others: int = 0
    listing: Listing[OutcomeRow] | None = None


def answered(
    form: WhatifPage, outcome: RehearsalOutcome, notes: Iterable[str], rights: Rights
) -> WhatifPage:
    """Return the page with the answer, for a person with `rights`."""
    too, too_others = _named(outcome.would_run_too, rights)
    instead, instead_others = _named(outcome.would_wait_instead, rights)
    rows = [_row(job, rights) for job in outcome.jobs]
    return WhatifPage(
        namespaces=form.namespaces,
        namespace=form.namespace,
        manifest=form.manifest,
        is_answer=True,
        runs=outcome.runs,
        settled=outcome.settled,
        cycles=outcome.cycles,
        notes=tuple(reduced(note, rights) for note in notes),
        leaving=tuple(_leaving(outcome.evictions, rights)),
        too=too,
        too_others=too_others,
        instead=instead,
        instead_others=instead_others,
        listing=listing("Submitted gangs", HEADINGS, rows, TableQuery(size=1000)),
    )


def _named(keys: Iterable[JobKey], rights: Rights) -> tuple[tuple[JobKey, ...], int]:
    """Return the gangs that may be named, and the number of the others."""
    found = list(keys)
    named = tuple(key for key in found if rights.sees(key.namespace))
    return named, len(found) - len(named)


def _row(job: JobOutcome, rights: Rights) -> OutcomeRow:
    why = job.explanation
    nodes = sorted({pod.node for pod in job.pods})
    return OutcomeRow(
        job=job.job,
        workload=job.workload,
        queue=job.queue,
        runs=job.runs,
        placed=len(job.pods),
        waiting=job.waiting_pods,
        nodes=tuple(nodes) if rights.nodes else (),
        reason=why.reason if why is not None else "",
        message=reduced(why.message, rights) if why is not None else "",
        advice=reduced(why.advice, rights) if why is not None else "",
    )


def _leaving(evictions: Iterable[RehearsedEviction], rights: Rights) -> Iterator[LeavingPods]:
    pods: Counter[tuple[str, JobKey | None]] = Counter()
    moves: Counter[tuple[str, JobKey | None]] = Counter()
    again: Counter[tuple[str, JobKey | None]] = Counter()
    for each in evictions:
        found = each.eviction
        key = (found.action, found.job if rights.sees(found.job.namespace) else None)
        pods[key] += 1
        moves[key] += bool(found.moves_to)
        again[key] += each.runs_again
    for key, count in pods.items():
        yield LeavingPods(*key, count, moves[key], again[key])
