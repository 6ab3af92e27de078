"""Answers `bindery explain` for a user with read access to only one namespace.

`bindery.cli.reading.cluster` reads the namespace, `bindery.answers.own` gives the answer.
"""

from datetime import UTC, datetime

import typer

from bindery.answers.own import OwnAnswer
from bindery.answers.ownqueues import queue_wire, queues_in
from bindery.answers.subjects import own_queue_name, subject
from bindery.cli.connection import with_client
from bindery.cli.errors import CommandError
from bindery.cli.options import Format
from bindery.cli.reading.cluster import read_own
from bindery.cli.tables import print_lines
from bindery.cli.text.documents import dump
from bindery.cli.text.own import own_lines, own_queue_lines
from bindery.kube.errors import ForbiddenError


def explain_own(
    context: typer.Context, about: tuple[str, str], output: Format, refusal: ForbiddenError
) -> bool:
    """Print the recorded state of an object; `about`: its name and namespace.

    `refusal`: the reason why the whole cluster cannot be read. Return False if the namespace cannot
    be read either.

    Raises:
        NoAnswerError: there is no such object.
        CommandError: no gang of the namespace has the figures of the queue.
    """
    name, namespace = about
    try:
        snapshot = with_client(context, lambda client: read_own(client, namespace))
    except ForbiddenError:
        return False
    queue = own_queue_name(name)
    if queue is not None:
        figures = queues_in(snapshot).get(queue)
        if figures is None:
            raise CommandError(
                f"no gang in namespace {namespace} has the figures of queue {queue}, "
                f"and this user may not read the cluster ({refusal})"
            )
        lines, answer = list(own_queue_lines(figures)), queue_wire(figures)
    else:
        found = OwnAnswer(snapshot, subject(snapshot, name, namespace), datetime.now(UTC))
        lines, answer = own_lines(found), found.to_wire()
    if output is Format.TEXT:
        print_lines(lines)
    else:
        typer.echo(dump(answer, output), nl=False)
    return True
