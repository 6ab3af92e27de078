"""Answer `bindery explain` for a user who may read a single namespace only.

Nothing is planned: the answer has what the scheduler has written into the status of the user's own
PodGroups and pods. No name of another tenant's object is in it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import typer

from bindery.cli.amounts import ordinal, plain, title
from bindery.cli.connection import with_client
from bindery.cli.errors import CommandError
from bindery.cli.evictionsshown import eviction_lines, eviction_of
from bindery.cli.listings import request_rows, scheduled_condition
from bindery.cli.options import Format
from bindery.cli.ownobjects import queues_in, read_own
from bindery.cli.subjects import Subject, own_queue_name, subject
from bindery.cli.tables import print_lines
from bindery.cli.wire import dump
from bindery.cli.writtenstate import state_lines, statements_about
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects import Condition, GangQueue, Turn
from bindery.kube.snapshot import ClusterSnapshot
from bindery.scheduler.insight.advice import advice

_WITHOUT_RIGHTS = (
    "What this user may not change is for the owner of the workload; queues and nodes are for an "
    "administrator."
)
_POD_SCHEDULED = "PodScheduled"
_RULES = ("quota", "fair_share", "allocated", "requested", "limit")


def explain_own(
    context: typer.Context, about: tuple[str, str], output: Format, refusal: ForbiddenError
) -> bool:
    """Print what is written about an object; `about`: its name and namespace.

    `refusal`: why the cluster cannot be read as a whole. Return False if the namespace cannot be
    read either.

    Raises:
        CommandError: there is no such object.
    """
    name, namespace = about
    try:
        snapshot = with_client(context, lambda client: read_own(client, namespace))
    except ForbiddenError:
        return False
    queue = own_queue_name(name)
    now = datetime.now(UTC)
    if queue is not None:
        figures = queues_in(snapshot).get(queue)
        if figures is None:
            raise CommandError(
                f"no gang in namespace {namespace} has the figures of queue {queue}, "
                f"and this user may not read the cluster ({refusal})"
            )
        lines, answer = list(_queue_lines(figures)), _queue_answer(figures)
    else:
        found = subject(snapshot, name, namespace)
        lines, answer = _lines(snapshot, found, now), _answer(snapshot, found, now)
    if output is Format.TEXT:
        print_lines(lines)
    else:
        typer.echo(dump(answer, output), nl=False)
    return True


def _lines(snapshot: ClusterSnapshot, about: Subject, now: datetime) -> list[str]:
    lines = state_lines(snapshot, about, now)
    lines += eviction_lines(eviction_of(about.group), "", ())
    said, turn, figures = _written(snapshot, about)
    if said is not None and said.status != "True":
        lines.append(f"The scheduler says: {said.reason}: {said.message}".rstrip(": "))
    if turn is not None:
        lines.append(turn_text(turn))
    if figures is not None:
        lines += _share_lines(figures)
    text = _advice(said, about)
    if text:
        lines.append(f"What to do: {text}")
    lines.append(
        "Shown is what the scheduler has written. A plan and the nodes are shown to users with the "
        "ClusterRole bindery-reader."
    )
    return lines


def _answer(snapshot: ClusterSnapshot, about: Subject, now: datetime) -> object:
    said, turn, figures = _written(snapshot, about)
    waits = said is not None and said.status != "True"
    requests = ClusterSnapshot(requests=tuple(statements_about(snapshot, about)))
    return {
        "job": about.key,
        "state": about.group.status.state if about.group is not None else "",
        "reason": said.reason if said is not None and waits else "",
        "message": said.message if said is not None and waits else "",
        "turn": msgspec.to_builtins(turn),
        "queue": _queue_answer(figures) if figures is not None else None,
        "advice": _advice(said, about),
        "requests": request_rows(requests, now),
        "planned": False,
    }


def _written(
    snapshot: ClusterSnapshot, about: Subject
) -> tuple[Condition | None, Turn | None, GangQueue | None]:
    """Return the condition of the gang or pod, its turn, and the figures of its queue."""
    if about.group is not None:
        status = about.group.status
        queue = status.assigned_queue or snapshot.queue_of_group(about.group)
        return scheduled_condition(about.group), status.turn, queues_in(snapshot).get(queue)
    if about.pod is None:
        return None, None, None
    conditions = about.pod.status.conditions or ()
    said = next((each for each in conditions if each.type == _POD_SCHEDULED), None)
    return said, None, queues_in(snapshot).get(snapshot.queue_of(about.pod))


def _advice(said: Condition | None, about: Subject) -> str:
    if said is None or said.status == "True":
        return ""
    least = about.group.spec.min_member if about.group is not None else 1
    text = advice(
        said.reason, said.message, where=about.changed, min_member=least, budget_blocks=False
    )
    return f"{text} {_WITHOUT_RIGHTS}" if text else ""


def turn_text(turn: Turn) -> str:
    """Return the place of a gang as a sentence."""
    ahead = turn.place - 1
    before = "nobody comes before it" if not ahead else f"{ahead} come before it"
    if ahead == 1:
        before = "one comes before it"
    return (
        f"Its turn: {ordinal(turn.place)} of {turn.of} that wait for room, "
        f"{ordinal(turn.place_in_queue)} of {turn.of_queue} in its queue; {before}."
    )


def _queue_lines(figures: GangQueue) -> Iterator[str]:
    gangs = figures.gangs
    yield f"Queue {figures.name}: {gangs.running} gangs run, {gangs.pending} wait."
    yield from _share_lines(figures)


def _share_lines(figures: GangQueue) -> Iterator[str]:
    """Yield a table of the queue: a line for each resource that is held, asked for or limited."""
    names = {name for rule in _RULES for name in getattr(figures, rule)}
    yield f"Queue {figures.name}:"
    headings = "  ".join(f"{rule.replace('_', ' '):>10}" for rule in _RULES)
    yield f"  {'':<12}  {headings}"
    for name in sorted(names):
        cells = (plain(name, getattr(figures, rule).get(name, "-")) for rule in _RULES)
        yield f"  {title(name):<12}  {'  '.join(f'{cell:>10}' for cell in cells)}"


def _queue_answer(figures: GangQueue) -> object:
    return {
        "name": figures.name,
        **{rule: getattr(figures, rule) for rule in _RULES},
        "gangs": {"running": figures.gangs.running, "pending": figures.gangs.pending},
    }
