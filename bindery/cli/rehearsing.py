"""Answer `bindery whatif`: what would happen if files were submitted now.

`sources` reads the cluster, `bindery.scenario.manifests` reads the manifests, and
`bindery.scheduler.insight` plays it in memory. Nothing is changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import NODE_POOL_LABEL
from bindery.api.yamlfile import Document, read
from bindery.cli.amounts import listed
from bindery.cli.connection import lease_namespace, with_client
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.explaintext import unserved_lines
from bindery.cli.grouperrows import GrouperRows, read_rows
from bindery.cli.manifestfiles import read_manifests
from bindery.cli.options import Format, Origin
from bindery.cli.source import Source
from bindery.cli.sources import of_pool, read_source
from bindery.cli.tables import print_lines
from bindery.cli.whatiftext import outcome_lines
from bindery.cli.wire import dump, to_wire
from bindery.grouper.table.loading import table_of
from bindery.kube.objects import Namespace, Pod, PodGroup
from bindery.scenario.manifests import Grouping, Submission, Surroundings, read_documents
from bindery.scheduler.insight.rehearsal import rehearse


@dataclass(frozen=True)
class Question:
    """What would be submitted."""

    files: tuple[Path, ...]
    namespace: str
    """Of objects that name none."""
    row_files: tuple[Path, ...] = ()
    recursive: bool = False
    """Whether the folders below a folder are meant too."""

    @property
    def name(self) -> str:
        """The files, for errors."""
        return listed([str(file) for file in self.files])


def answer(context: typer.Context, origin: Origin, question: Question, output: Format) -> None:
    """Print what would happen if the files of `question` were submitted.

    Raises:
        FileError: a file cannot be used.
        CommandError: nothing in them is for the scheduler that is asked.
        typer.Exit: some of it would wait.
    """
    documents = read_manifests(question.files, recursive=question.recursive)
    source = read_source(context, origin, with_jobs=True)
    rows = GrouperRows() if origin.file is not None else _grouper_rows(context)
    submission = _submission(source, documents, question, rows)
    if origin.file is None:  # snapshots need not name every namespace
        _demand_namespaces(source, submission, question.name)
    scheduler = source.configuration.scheduler_name
    pools = {_pool(pod) for pod in submission.pods() if pod.spec.scheduler_name == scheduler}
    if origin.node_pool is None and len(pools) == 1:
        source = of_pool(context, origin, source, *pools)
    left_out = _left_out(submission, source.configuration)
    foreign = {pod.metadata.uid for pod, _ in left_out}
    submission.objects = [i for i in submission.objects if i.metadata.uid not in foreign]
    arrivals = [each for each in submission.arrivals if each.pod.metadata.uid not in foreign]
    _demand_something(submission, question.name, [why for _, why in left_out])
    world = source.later(submission.takes_s).world
    outcome = rehearse(world, submission.objects, arrivals, submission.workloads)
    _tell(submission, left_out)
    if output is Format.TEXT:
        print_lines(unserved_lines(source.unserved) if source.unserved else ())
        print_lines(outcome_lines(outcome, source.lines))
    else:
        answer = to_wire(outcome)
        assert isinstance(answer, dict), "an outcome is a dataclass"
        typer.echo(dump(source.described({"runs": outcome.runs, **answer}), output), nl=False)
    if not outcome.runs:
        raise typer.Exit(ExitCode.FAILURE)


def _grouper_rows(context: typer.Context) -> GrouperRows:
    """Return the rows of the cluster's grouper.

    Raises:
        KubeError: the cluster does not answer.
    """
    return with_client(context, lambda client: read_rows(client, lease_namespace(context)))


def _submission(
    source: Source, documents: Sequence[Document], question: Question, rows: GrouperRows
) -> Submission:
    """Return the objects of `documents`; those of kind GrouperTable are rows for the others.

    Raises:
        FileError: a document cannot be used.
    """
    tables = [document for document in documents if _is_table(document)]
    others = [document for document in documents if not _is_table(document)]
    tables += [document for file in question.row_files for document in read(file)]
    configuration = source.configuration
    table, problem = table_of(rows.documents, tables), rows.problem
    is_grouped = rows.is_there or configuration.grouper.wait_for_groups
    if not rows.is_there:
        result = "the answer assumes one" if is_grouped else "pods without a PodGroup are alone"
        problem = f"no grouper has run in this cluster: {result}"
    grouping = Grouping(table if is_grouped else None, configuration.scheduler_name)
    around = Surroundings(source.snapshot, question.namespace, source.now, grouping)
    submission = read_documents(others, around)
    submission.warnings += [problem] if problem and not tables else []
    return submission


def _is_table(document: Document) -> bool:
    data = document.data
    return isinstance(data, dict) and data.get("kind") == "GrouperTable"


def _tell(submission: Submission, left_out: Sequence[tuple[Pod, str]]) -> None:
    """Write to stderr what is not in the answer, and what is wrong with the workloads."""
    for name, why in submission.passed_over.items():
        typer.echo(f"{name} is ignored: {why}", err=True)
    told: dict[str, str] = {}
    for pod, why in left_out:
        told.setdefault(_maker(pod), why)
    for maker, why in told.items():
        typer.echo(f"{maker} is left out: {why}", err=True)
    for warning in submission.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _left_out(submission: Submission, asked: SchedulerConfiguration) -> list[tuple[Pod, str]]:
    """Return the pods of other schedulers, each with the reason.

    Those that have a node already are not among them: they take room.
    """
    found = []
    for pod in submission.pods():
        scheduler, pool = pod.spec.scheduler_name or "default-scheduler", _pool(pod)
        if pod.spec.node_name:
            continue
        if scheduler != asked.scheduler_name:
            text = f"is planned by {scheduler}; write schedulerName: {asked.scheduler_name}"
        elif pool != asked.node_pool:
            text = f"belongs to node pool {pool!r}; the plan is for node pool {asked.node_pool!r}"
        else:
            continue
        found.append((pod, f"pod {pod.metadata.name} {text}"))
    return found


def _demand_something(submission: Submission, name: str, left_out: Sequence[str]) -> None:
    """Refuse files without anything to schedule.

    Raises:
        CommandError: they have neither pods that are planned nor what changes how others are.
    """
    if not all(isinstance(item, PodGroup) for item in submission.objects):
        return
    if left_out:
        problem = left_out[0]
    elif submission.objects:
        problem = "it has PodGroups but no pods that name them"
    else:
        reasons = [f"{name}: {why}" for name, why in submission.passed_over.items()]
        problem = f"nothing in it is scheduled ({listed(reasons)})"
    raise CommandError(f"{name}: {problem}", ExitCode.BAD_INPUT)


def _demand_namespaces(source: Source, submission: Submission, name: str) -> None:
    """Refuse files with objects in namespaces that neither the cluster nor the files have.

    Raises:
        CommandError: a namespace does not exist.
    """
    files = [item for item in submission.objects if isinstance(item, Namespace)]
    known = {each.metadata.name for each in (*source.snapshot.namespaces, *files)}
    pods = [each.pod for each in submission.arrivals]
    used = {item.metadata.namespace for item in (*submission.objects, *pods)} - {""}
    missing = sorted(used - known)
    if missing:
        subject = f"namespace {missing[0]} does"
        if len(missing) > 1:
            subject = f"namespaces {listed(missing)} do"
        problem = f"{subject} not exist: create it, or name another with -n"
        raise CommandError(f"{name}: {problem}", ExitCode.BAD_INPUT)


def _pool(pod: Pod) -> str:
    return pod.metadata.labels.get(NODE_POOL_LABEL, "")


def _maker(pod: Pod) -> str:
    """Return the controller of `pod`, as in `Job/train`, or else the pod itself."""
    owners = [owner for owner in pod.metadata.owner_references if owner.controller]
    kind, name = (owners[0].kind, owners[0].name) if owners else ("Pod", pod.metadata.name)
    return f"{kind}/{name}"
