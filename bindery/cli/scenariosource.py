"""The cluster with which a scenario begins, as a `Source`. Called by `sources`, and by `manifests`
for the objects of a scenario.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.api.yamlfile import FileError
from bindery.cli.cluster import Look
from bindery.cli.options import Origin
from bindery.cli.sources import Source, configured
from bindery.kube.objects import (
    BindRequest,
    KubeObject,
    Node,
    OwnerReference,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
)
from bindery.kube.store import Change
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario

Item = TypeVar("Item", bound=KubeObject)

_OWN_KINDS = (Pod, Node, PodGroup, Queue, BindRequest, PriorityClass)


def read_scenario_source(path: Path, origin: Origin) -> Source:
    """Return the cluster with which the only scenario of the file at `path` begins.

    Raises:
        FileError: a file cannot be used.
    """
    scenario = _only_scenario(path)
    used = {queue.name: queue.usage for queue in scenario.queues if queue.usage}
    configuration = configured(origin, scenario.config.to_configuration())
    return Source(look_at(scenario), configuration, scenario.now, used)


def look_at(scenario: Scenario) -> Look:
    """Return the cluster with which `scenario` begins, as the command line sees one."""
    items = objects_of(scenario)
    return Look(
        pods=_of(Pod, items),
        nodes=_of(Node, items),
        groups=_of(PodGroup, items),
        queues=_of(Queue, items),
        requests=_of(BindRequest, items),
        priority_classes=_of(PriorityClass, items),
        further=tuple(item for item in items if not isinstance(item, _OWN_KINDS)),
    )


def objects_of(scenario: Scenario) -> list[KubeObject]:
    """Return all objects with which `scenario` begins; pods that come back have a controller."""
    changes: list[Change[KubeObject]] = []
    cluster = ScenarioCluster(scenario, changes.append)
    cluster.populate()
    lasting = {record.who.uid for record in cluster.pods.values() if record.who.recreate}
    return [
        _controlled(change.object)
        if isinstance(change.object, Pod) and change.object.metadata.uid in lasting
        else change.object
        for change in changes
    ]


def _controlled(pod: Pod) -> Pod:
    job = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=[owner])
    return msgspec.structs.replace(pod, metadata=meta)


def _only_scenario(path: Path) -> Scenario:
    found = list(read_scenarios(path))
    for item in found:
        if isinstance(item, FileError):
            raise item
    if len(found) != 1:
        raise FileError(str(path), 1, f"one scenario is expected, {len(found)} found")
    (scenario,) = found
    assert isinstance(scenario, Scenario), "errors have been raised"
    return scenario


def _of(kind: type[Item], items: Iterable[KubeObject]) -> tuple[Item, ...]:
    return tuple(item for item in items if isinstance(item, kind))
