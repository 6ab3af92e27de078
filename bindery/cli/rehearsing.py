"""`bindery whatif FILE`: what would happen if the file were submitted now, changing nothing.

`sources` reads the cluster, `manifests` the file, `bindery.scheduler.insight` plays it; this module
puts the answer together. The exit code is the answer in short.
"""

from pathlib import Path
from typing import Annotated

import typer

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import NODE_POOL_LABEL
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.manifests import Submission, read_submission
from bindery.cli.sources import ConfigOption, FileOption, Origin, PoolOption, read_source
from bindery.cli.tables import print_lines
from bindery.cli.whatiftext import outcome_lines
from bindery.cli.wire import Format, dump, to_wire
from bindery.kube.objects import Pod
from bindery.scheduler.insight.rehearsal import rehearse

app = typer.Typer(no_args_is_help=True)


@app.command(
    epilog="Examples: bindery whatif job.yaml · bindery whatif job.yaml -n team -o json · "
    "bindery whatif job.yaml --file snapshot.yaml · bindery whatif more-quota.yaml"
)
def whatif(
    context: typer.Context,
    manifests: Annotated[
        Path, typer.Argument(metavar="FILE", help="Manifests as for kubectl, or a scenario.")
    ],
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "default",
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Say what would happen if FILE were submitted now.

    Which pods go where; who is evicted or moved for it, by which action; who waits instead.

    Or why it waits, and what would help.

    FILE holds PodGroups, pods, Jobs and their like, queues, priority classes, nodes; or a scenario.

    It is played in memory until nothing changes any more; the cluster is only read.

    Ends with 0 if all of it would run, 1 if some of it would wait, 2 if FILE cannot be used,
    3 if the cluster does not answer, 4 if Bindery itself fails.
    """
    source = read_source(context, Origin(file, config, node_pool))
    submission = read_submission(manifests, source.look, namespace, source.now)
    pools = {pod.metadata.labels.get(NODE_POOL_LABEL, "") for pod in submission.of(Pod)}
    if node_pool is None and len(pools) == 1:
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
