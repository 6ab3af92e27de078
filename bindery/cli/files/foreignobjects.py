"""Objects of other schedulers, for `bindery migrate`: from files or from a cluster."""

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from bindery.api.yamlfile import FileError, parse, read
from bindery.cli.connection import with_client
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.served import served


class ForeignObject(KubeObject, frozen=True, rename="camel", kw_only=True):
    """An object of a kind for which Bindery has no model."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class ForeignClass(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A priority class of another scheduler, which has no spec."""

    value: int = 0
    description: str = ""


def _kind(
    group: str,
    version: str,
    kind: str,
    *,
    namespaced: bool = False,
    model: type[KubeObject] = ForeignObject,
) -> Resource[Any]:
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return Resource(group, version, plural, kind, namespaced, model)


_PLURALS: Final = {"Topology": "topologies", "WorkloadPriorityClass": "workloadpriorityclasses"}


KAI: Final = (
    _kind("scheduling.run.ai", "v2", "Queue"),
    _kind("scheduling.run.ai", "v2alpha2", "PodGroup", namespaced=True),
    _kind("kai.scheduler", "v1alpha1", "Topology"),
    _kind("kai.scheduler", "v1", "SchedulingShard"),
)
VOLCANO: Final = (
    _kind("scheduling.volcano.sh", "v1beta1", "Queue"),
    _kind("scheduling.volcano.sh", "v1beta1", "PodGroup", namespaced=True),
    _kind("topology.volcano.sh", "v1alpha1", "HyperNode"),
    _kind("shard.volcano.sh", "v1alpha1", "NodeShard"),
)
KUEUE: Final = tuple(
    each
    for version in ("v1beta2", "v1beta1")
    for each in (
        _kind("kueue.x-k8s.io", version, "ClusterQueue"),
        _kind("kueue.x-k8s.io", version, "Cohort"),
        _kind("kueue.x-k8s.io", version, "LocalQueue", namespaced=True),
        _kind("kueue.x-k8s.io", version, "ResourceFlavor"),
        _kind("kueue.x-k8s.io", version, "Topology"),
        _kind("kueue.x-k8s.io", version, "WorkloadPriorityClass", model=ForeignClass),
        _kind("kueue.x-k8s.io", version, "AdmissionCheck"),
    )
)
"""Of a kind that is served in two versions, the first is read."""


def read_objects(
    context: typer.Context, files: Sequence[Path], kinds: Sequence[Resource[Any]]
) -> list[Mapping[str, Any]]:
    """Return the objects of `kinds` in `files`, or in the cluster if there are no files.

    Raises:
        FileError: a file cannot be used.
        CommandError: there are no such objects.
        KubeError: the cluster does not answer.
    """
    wanted = {(kind.group, kind.kind) for kind in kinds}
    if not files:
        return _from_cluster(context, kinds)
    found = [body for file in files for body in _from_file(file)]
    mine = [body for body in found if (_group(body), body.get("kind")) in wanted]
    if not mine:
        names = " or ".join(dict.fromkeys(f"{kind.kind}.{kind.group}" for kind in kinds))
        read = f"the files have {_counted(found, wanted) or 'no objects'}"
        raise CommandError(f"{read}; {names} is expected", ExitCode.BAD_INPUT)
    if len(mine) < len(found):
        typer.echo(
            f"Left out, as they are no queues or gangs: {_counted(found, wanted)}.", err=True
        )
    return mine


def _counted(found: Sequence[Mapping[str, Any]], wanted: Collection[tuple[str, object]]) -> str:
    """Return the number of objects that are not `wanted`, by kind, as text."""
    kinds = ((_group(body), body.get("kind")) for body in found)
    counts = Counter(kind for kind in kinds if kind not in wanted)
    parts = (
        f"{count} {kind}.{group}" if group else f"{count} {kind}"
        for (group, kind), count in counts.items()
    )
    return ", ".join(parts)


def _group(body: Mapping[str, Any]) -> str:
    return str(body.get("apiVersion", "")).rpartition("/")[0]


def _from_file(path: Path) -> list[Mapping[str, Any]]:
    documents = parse(sys.stdin.read(), "standard input") if str(path) == "-" else read(path)
    found: list[Mapping[str, Any]] = []
    for document in documents:
        if not isinstance(document.data, dict):
            raise document.error((), "an object of Kubernetes is expected")
        items = document.data.get("items")
        if str(document.data.get("kind", "")).endswith("List") and isinstance(items, list):
            found += [item for item in items if isinstance(item, dict)]
        else:
            found.append(document.data)
    if not found:
        raise FileError(str(path), 1, "there is no object in it")
    return found


def _from_cluster(
    context: typer.Context, kinds: Sequence[Resource[Any]]
) -> list[Mapping[str, Any]]:
    async def listed(client: Any) -> list[Mapping[str, Any]]:
        there = await served(client, kinds)
        if not there:
            names = ", ".join(dict.fromkeys(f"{kind.plural}.{kind.group}" for kind in kinds))
            raise CommandError(
                f"the cluster has none of {names}: give the objects as files", ExitCode.NO_CLUSTER
            )
        found: list[Mapping[str, Any]] = []
        first = {(kind.group, kind.kind): kind for kind in reversed(there)}
        for kind in reversed(first.values()):
            try:
                items = await client.list(kind)
            except ForbiddenError as error:
                raise CommandError(
                    f"{error}; the command needs the right to list {kind.plural}.{kind.group}",
                    ExitCode.NO_CLUSTER,
                ) from error
            header = {"apiVersion": kind.api_version, "kind": kind.kind}
            found += [{**msgspec.to_builtins(item), **header} for item in items]
        return found

    return with_client(context, listed)
