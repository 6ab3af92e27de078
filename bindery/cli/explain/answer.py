"""Answer `bindery explain`: read the cluster, ask `bindery.answers`, print."""

from datetime import UTC, datetime

import typer

from bindery.answers.errors import NoAnswerError
from bindery.answers.explanation import explain, explain_jobs_of_queue
from bindery.answers.subjects import named_queue, subject
from bindery.cli.explain.own import explain_own
from bindery.cli.options import Format, Origin
from bindery.cli.reading.sources import of_pool, read_source
from bindery.cli.tables import print_lines, working
from bindery.cli.text.documents import dump
from bindery.cli.text.explanation import queue_lines
from bindery.cli.text.gang import job_lines
from bindery.cli.text.peoplenames import PeopleNames
from bindery.kube.errors import ForbiddenError


def answer(context: typer.Context, origin: Origin, about: tuple[str, str], output: Format) -> None:
    """Print the state of an object; `about`: its name and namespace.

    Raises:
        NoAnswerError: there is no such object, or it is not planned.
    """
    try:
        with working("reading the cluster"):
            source = read_source(context, origin, with_jobs=True)
    except ForbiddenError as error:
        if not explain_own(context, about, output, error):
            raise
        return
    names = PeopleNames(source.snapshot.groups)
    queue = named_queue(source.snapshot, about[0])
    if queue is not None:
        with working("planning in memory"):
            stands = explain_jobs_of_queue(source, queue.metadata.name)
        if output is Format.TEXT:
            print_lines(names.lines([*queue_lines(stands, source.absence), *source.lines]))
        else:
            typer.echo(dump(source.described(stands), output), nl=False)
        return
    found = subject(source.snapshot, *about)
    source = of_pool(context, origin, source, found.node_pool)
    with working("planning in memory"):
        now = source.now if origin.file is not None else datetime.now(UTC)
        explained = explain(source, found, now)
    if output is Format.TEXT:
        print_lines(names.lines([*job_lines(explained), *source.lines]))
        return
    wire = explained.to_wire()
    if wire is None:
        name = source.configuration.scheduler_name
        raise NoAnswerError(f"{found.key} is not planned by {name}")
    typer.echo(dump(wire, output), nl=False)
