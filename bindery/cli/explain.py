"""`bindery explain POD|PODGROUP`: the gate that holds it, the nodes against it, what to do next.

`live` looks at the cluster, `findings` asks the engine; this module finds the object that is meant
and writes the answer.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated

import typer
from rich.text import Text

from bindery.api.names import SCHEDULER_NAME
from bindery.cli.connection import with_client
from bindery.cli.errors import CommandError
from bindery.cli.findings import ADVICE, Finding, find, pool_of
from bindery.cli.listings import is_bound, scheduled_condition
from bindery.cli.live import FINISHED, Look, look
from bindery.cli.tables import age, make_console
from bindery.kube.objects import Pod, PodGroup
from bindery.scheduler.cache.reading import job_key
from bindery.scheduler.model.jobs import JobKey

app = typer.Typer(no_args_is_help=True)

_PREFIXES = {"pod": "pod", "pods": "pod", "podgroup": "group", "podgroups": "group", "pg": "group"}


@dataclass(frozen=True)
class Subject:
    """What the user asks about: a PodGroup, or a pod and its PodGroup if it has one."""

    key: JobKey
    group: PodGroup | None
    pod: Pod | None


@app.command(epilog="Examples: bindery explain my-gang · bindery explain pod/worker-3 -n team")
def explain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="POD|PODGROUP", help="NAME, pod/NAME or pg/NAME.")],
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "default",
) -> None:
    """Say which gate holds a pod or a gang, what the nodes say, and what to do next."""
    seen, now = with_client(context, look), datetime.now(UTC)
    console = make_console()
    for line in describe(seen, subject(seen, name, namespace), now):
        console.print(Text(line))


def subject(seen: Look, name: str, namespace: str) -> Subject:
    """Return what `name` means in `namespace`: a PodGroup before a pod.

    Raises:
        CommandError: there is no such thing; the message names similar ones.
    """
    prefix, _, bare = name.rpartition("/")
    kind = _PREFIXES.get(prefix, "") if prefix else "any"
    if not kind:
        raise CommandError(f"{prefix}/ is not known; write pod/NAME or pg/NAME")
    groups = {g.metadata.name: g for g in seen.groups if g.metadata.namespace == namespace}
    pods = {p.metadata.name: p for p in seen.pods if p.metadata.namespace == namespace}
    if kind in ("any", "group") and bare in groups:
        return Subject(JobKey(namespace, bare, True), groups[bare], None)
    if kind in ("any", "pod") and bare in pods:
        key = job_key(pods[bare])
        return Subject(key, groups.get(key.name) if key.is_group else None, pods[bare])
    known = {"any": [*groups, *pods], "group": [*groups], "pod": [*pods]}[kind]
    what = {"any": "PodGroup or pod", "group": "PodGroup", "pod": "pod"}[kind]
    near = get_close_matches(bare, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise CommandError(f"there is no {what} {bare} in namespace {namespace}{hint}")


def describe(seen: Look, about: Subject, now: datetime) -> list[str]:
    """Return the answer, line by line."""
    lines = []
    if about.pod is not None:
        lines.append(_pod_line(seen, about.pod))
        if about.pod.spec.scheduler_name != SCHEDULER_NAME:
            scheduler = about.pod.spec.scheduler_name or "default-scheduler"
            return [*lines, f"It is planned by {scheduler}, not by {SCHEDULER_NAME}."]
    if about.key.is_group:
        lines.append(_group_line(seen, about, now))
    owner = about.group or about.pod
    pool = pool_of(owner) if owner is not None else ""
    return lines + _why(find(seen, about.key, pool, now.timestamp()), about)


def _pod_line(seen: Look, pod: Pod) -> str:
    name = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    if pod.status.phase in FINISHED:
        return f"{name} is {pod.status.phase}."
    if pod.metadata.deletion_timestamp is not None:
        return f"{name} is being deleted."
    if pod.spec.node_name:
        return f"{name} is bound to node {pod.spec.node_name} ({pod.status.phase})."
    node = seen.requested_nodes.get(pod.metadata.uid)
    if node is not None:
        return f"{name} is being bound to node {node} by a BindRequest."
    return f"{name} waits."


def _group_line(seen: Look, about: Subject, now: datetime) -> str:
    if about.group is None:
        return f"Its PodGroup {about.key} does not exist."
    meta = about.group.metadata
    pods = seen.pods_by_group.get((meta.namespace, meta.name), [])
    bound = sum(is_bound(pod) for pod in pods)
    return (
        f"PodGroup {meta.namespace}/{meta.name} (queue {about.group.spec.queue}, "
        f"{age(meta.creation_timestamp, now)} old): {bound} of {len(pods)} pods are bound, "
        f"at least {about.group.spec.min_member} are needed."
    )


def _why(finding: Finding, about: Subject) -> list[str]:
    report = finding.report
    said = scheduled_condition(about.group) if about.group is not None else None
    if report is None:
        return ["None of its pods waits for the scheduler."]
    lines = []
    if said is not None and said.status != "True":
        lines.append(f"The scheduler says: {said.reason}: {said.message}")
    if finding.would_bind:
        lines.append(f"A cycle now would place {finding.would_bind} of its pods.")
        if said is None or said.status == "True":
            lines.append("If nothing happens, see whether the scheduler runs.")
        return lines
    if said is None or said.message != report.message:
        lines.append(f"Held by: {report.reason}: {report.message}".rstrip(": "))
    for shape in finding.shapes:
        plural = "pod" if shape.pod_count == 1 else "equal pods"
        lines.append(
            f"Nodes that would take one of its {shape.pod_count} {plural} that wait: "
            f"{shape.open_nodes} of {shape.node_count}"
        )
        lines += [f"  {count:>6}  {reason}" for reason, count in shape.against.items()]
    advice = ADVICE.get(report.reason)
    return [*lines, f"What to do: {advice}"] if advice else lines
