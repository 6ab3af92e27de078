"""Answer `bindery whatif`: read the files and the cluster, ask `bindery.answers`, print."""

from dataclasses import dataclass
from pathlib import Path

import typer

from bindery.answers.amounts import listed
from bindery.answers.grouperrows import GrouperRows, read_rows
from bindery.answers.submission import (
    Submitted,
    demand_namespaces,
    pool_of,
    rehearsed,
    submission_of,
)
from bindery.api.yamlfile import read
from bindery.cli.connection import lease_namespace, with_client
from bindery.cli.errors import ExitCode
from bindery.cli.options import Format, Origin
from bindery.cli.reading.sources import of_pool, read_source
from bindery.cli.rehearse.manifestfiles import read_manifests
from bindery.cli.tables import print_lines
from bindery.cli.text.documents import dump
from bindery.cli.text.explanation import unserved_lines
from bindery.cli.text.rehearsal import outcome_lines


@dataclass(frozen=True)
class Question:
    """The manifests to submit."""

    files: tuple[Path, ...]
    namespace: str
    """Namespace of objects that name none."""
    row_files: tuple[Path, ...] = ()
    recursive: bool = False
    """Whether to include sub-folders."""

    @property
    def name(self) -> str:
        """The names of the files, for errors."""
        return listed([str(file) for file in self.files])


def answer(context: typer.Context, origin: Origin, question: Question, output: Format) -> None:
    """Print the predicted outcome of submitting the files of `question`.

    Raises:
        FileError: a file cannot be used.
        BadInputError: they contain nothing for this scheduler.
        typer.Exit: some of it would wait.
    """
    documents = read_manifests(question.files, recursive=question.recursive)
    source = read_source(context, origin, with_jobs=True)
    rows = GrouperRows() if origin.file is not None else _grouper_rows(context)
    tables = [document for file in question.row_files for document in read(file)]
    submitted = Submitted(question.name, documents, question.namespace, tables)
    submission = submission_of(source, submitted, rows)
    if origin.file is None:  # snapshots need not name every namespace
        demand_namespaces(source, submission, question.name)
    pool = pool_of(source, submission)
    if origin.node_pool is None and pool is not None:
        source = of_pool(context, origin, source, pool)
    found = rehearsed(source, submission, question.name)
    for note in found.notes:
        typer.echo(note, err=True)
    if output is Format.TEXT:
        print_lines(unserved_lines(source.unserved) if source.unserved else ())
        print_lines(outcome_lines(found.outcome, source.lines))
    else:
        typer.echo(dump(found.to_wire(), output), nl=False)
    if not found.outcome.runs:
        raise typer.Exit(ExitCode.FAILURE)


def _grouper_rows(context: typer.Context) -> GrouperRows:
    """Return the rows of the cluster's grouper.

    Raises:
        KubeError: the cluster does not answer.
    """
    return with_client(context, lambda client: read_rows(client, lease_namespace(context)))
