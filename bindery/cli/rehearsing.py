"""Answer `bindery whatif`: what would happen if a file were submitted now.

`sources` reads the cluster, `bindery.scenario.manifests` reads the file, and
`bindery.scheduler.insight` plays it in memory. Nothing is changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from bindery.api.configuration import GrouperExpectation, SchedulerConfiguration
from bindery.api.names import NODE_POOL_LABEL
from bindery.cli.amounts import listed
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import Format, Origin
from bindery.cli.sources import of_pool, read_source
from bindery.cli.tables import print_lines
from bindery.cli.whatiftext import outcome_lines
from bindery.cli.wire import dump, to_wire
from bindery.kube.objects import Pod, PodGroup
from bindery.scenario.manifests import Submission, read_submission
from bindery.scheduler.insight.rehearsal import rehearse


def answer(
    context: typer.Context, origin: Origin, submitted: tuple[Path, str], output: Format
) -> None:
    """Print what would happen if a file were submitted; `submitted`: its path, and a namespace.

    Raises:
        FileError: the file cannot be used.
        CommandError: nothing in it is for the scheduler that is asked.
        typer.Exit: some of it would wait.
    """
    manifests, namespace = submitted
    source = read_source(context, origin, with_jobs=True)
    source = replace(source, configuration=_without_grouper(source.configuration))
    submission = read_submission(manifests, source.snapshot, namespace, source.now)
    scheduler = source.configuration.scheduler_name
    pools = {_pool(pod) for pod in submission.of(Pod) if pod.spec.scheduler_name == scheduler}
    if origin.node_pool is None and len(pools) == 1:
        source = of_pool(context, origin, source, *pools)
        source = replace(source, configuration=_without_grouper(source.configuration))
    left_out = _left_out(submission, source.configuration)
    foreign = {pod.metadata.uid for pod, _ in left_out}
    submission.objects = [i for i in submission.objects if i.metadata.uid not in foreign]
    _demand_something(submission, manifests, [why for _, why in left_out])
    outcome = rehearse(source.later(submission.takes_s).world, submission.objects)
    for name, why in submission.passed_over.items():
        typer.echo(f"{name} is ignored: {why}", err=True)
    told: dict[str, str] = {}
    for pod, why in left_out:
        told.setdefault(_maker(pod), why)
    for maker, why in told.items():
        typer.echo(f"{maker} is left out: {why}", err=True)
    if output is Format.TEXT:
        print_lines(outcome_lines(outcome, source.lines))
    else:
        answer = to_wire(outcome)
        assert isinstance(answer, dict), "an outcome is a dataclass"
        typer.echo(dump(source.described({"runs": outcome.runs, **answer}), output), nl=False)
    if not outcome.runs:
        raise typer.Exit(ExitCode.FAILURE)


def _without_grouper(configuration: SchedulerConfiguration) -> SchedulerConfiguration:
    """Return `configuration` for pods whose PodGroups nobody writes, as no grouper runs here."""
    return configuration.model_copy(update={"grouper": GrouperExpectation()})


def _left_out(submission: Submission, asked: SchedulerConfiguration) -> list[tuple[Pod, str]]:
    """Return the pods of other schedulers, each with the reason.

    Those that have a node already are not among them: they take room.
    """
    found = []
    for pod in submission.of(Pod):
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


def _demand_something(submission: Submission, path: Path, left_out: Sequence[str]) -> None:
    """Refuse a file without anything to schedule.

    Raises:
        CommandError: it has neither pods that are planned nor what changes how others are.
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
    raise CommandError(f"{path}: {problem}", ExitCode.BAD_INPUT)


def _pool(pod: Pod) -> str:
    return pod.metadata.labels.get(NODE_POOL_LABEL, "")


def _maker(pod: Pod) -> str:
    """Return the controller of `pod`, as in `Job/train`, or else the pod itself."""
    owners = [owner for owner in pod.metadata.owner_references if owner.controller]
    kind, name = (owners[0].kind, owners[0].name) if owners else ("Pod", pod.metadata.name)
    return f"{kind}/{name}"
