"""What `bindery whatif` answers: what would happen if a file were submitted now.

`sources` reads the cluster, `manifests` the file, `bindery.scheduler.insight` plays it; this module
puts the answer together. Nothing is changed.
"""

from pathlib import Path

import typer

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import NODE_POOL_LABEL
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.manifests import Submission, read_submission
from bindery.cli.options import Format, Origin
from bindery.cli.sources import read_source
from bindery.cli.tables import print_lines
from bindery.cli.whatiftext import outcome_lines
from bindery.cli.wire import dump, to_wire
from bindery.kube.objects import Pod
from bindery.scheduler.insight.rehearsal import rehearse


def answer(
    context: typer.Context, origin: Origin, submitted: tuple[Path, str], output: Format
) -> None:
    """Print what would happen if a file were submitted; `submitted`: its path, and a namespace.

    Raises:
        FileError: the file cannot be used.
        CommandError: the scheduler that is asked does not plan what is in it.
        typer.Exit: some of it would wait.
    """
    manifests, namespace = submitted
    source = read_source(context, origin, with_jobs=True)
    submission = read_submission(manifests, source.look, namespace, source.now)
    pools = {pod.metadata.labels.get(NODE_POOL_LABEL, "") for pod in submission.of(Pod)}
    if origin.node_pool is None and len(pools) == 1:
        source = source.in_pool(*pools)
    _demand_ours(submission, manifests, source.configuration)
    outcome = rehearse(source.later(submission.takes_s).world, submission.objects)
    for name in submission.passed_over:
        typer.echo(f"{name} is passed over: it makes no pods that are known", err=True)
    if output is Format.TEXT:
        print_lines(outcome_lines(outcome))
    else:
        answer = to_wire(outcome)
        assert isinstance(answer, dict), "an outcome is a dataclass"
        typer.echo(dump({"runs": outcome.runs, **answer}, output), nl=False)
    if not outcome.runs:
        raise typer.Exit(ExitCode.FAILURE)


def _demand_ours(submission: Submission, path: Path, asked: SchedulerConfiguration) -> None:
    """Refuse pods that the scheduler which is asked would leave to another.

    Raises:
        CommandError: there is one.
    """
    for pod in submission.of(Pod):
        name, scheduler = pod.metadata.name, pod.spec.scheduler_name or "default-scheduler"
        pool = pod.metadata.labels.get(NODE_POOL_LABEL, "")
        if scheduler != asked.scheduler_name:
            problem = f"is planned by {scheduler}; write schedulerName: {asked.scheduler_name}"
        elif pool != asked.node_pool:
            problem = f"is of node pool {pool!r}, and that of {asked.node_pool!r} is asked"
        else:
            continue
        raise CommandError(f"{path}: pod {name} {problem}", ExitCode.BAD_INPUT)
