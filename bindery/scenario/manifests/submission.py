"""Read a file of manifests, or a scenario, as objects of the cluster it is submitted to.

Called by `bindery whatif` and by simulations. Objects get what the API server would add: names,
times and priorities. `workloads` makes pods and PodGroups of Jobs and other workloads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

from bindery.api.names import API_VERSION
from bindery.api.times import seconds, timestamp
from bindery.api.yamlfile import Document, validate
from bindery.binder.webhook.directory import Directory
from bindery.kube.objects import reading
from bindery.kube.objects.models import model_of
from bindery.kube.objects.ownernames import grouped
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.resources import NAMESPACES, NODES, PRIORITY_CLASSES, Resource
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.storage import PersistentVolumeClaim
from bindery.kube.objects.watched import (
    CustomResource,
    KubeObject,
    Meta,
    Namespace,
    Pod,
    PriorityClass,
)
from bindery.scenario.creation import objects_of
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import BUILT_IN_PRIORITIES, Scenario
from bindery.scenario.manifests.defaulting import Defaults, admitted
from bindery.scenario.manifests.demands import demand_sound
from bindery.scenario.manifests.stages import later_pods
from bindery.scenario.manifests.workloads import Given, Grouping, group
from bindery.scenario.raw_objects import KINDS, with_text_amounts
from bindery.scheduler.insight.arrivals import Arrival
from bindery.scheduler.model.jobs import JobKey

Item = TypeVar("Item", bound=KubeObject)

_WHOLE: Final[Mapping[str, Resource[Any]]] = {
    resource.kind: resource for resources in KINDS.values() for resource in resources
}
"""Kinds of storage and of devices: taken as they are."""

_CLUSTER_WIDE: Final[Mapping[str, Resource[Any]]] = {
    each.kind: each for each in (NAMESPACES, NODES, PRIORITY_CLASSES)
}
_GENERATING: Final = frozenset({"Job", "ReplicaSet", "ReplicationController"})
"""Controllers that generate unique names for their pods."""
_CRITICAL: Final = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
"""Priority classes that every API server has."""


@dataclass
class Submission:
    """The objects of a file."""

    objects: list[KubeObject] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """`kind/name` of what brings nothing that is planned -> why."""
    arrivals: list[Arrival] = field(default_factory=list)
    """Pods of later stages: their controllers create them when others run, or have ended."""
    workloads: dict[JobKey, str] = field(default_factory=dict)
    """Gangs that the grouper makes -> `Kind/name` of their workload in the manifest."""
    warnings: list[str] = field(default_factory=list)
    """The warnings of the grouper or the webhook about the workloads."""
    takes_s: int = 0
    """How long submitting takes: jobs of a scenario come one a second."""

    def pods(self) -> list[Pod]:
        """Return all pods, also the pods that come later."""
        now = [item for item in self.objects if isinstance(item, Pod)]
        return [*now, *(arrival.pod for arrival in self.arrivals)]


class _Manifest(BaseModel):
    """The outer form of every manifest."""

    model_config = ConfigDict(extra="allow")

    apiVersion: str  # noqa: N815  # the key in the file
    kind: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Surroundings:
    """Where and when manifests are submitted."""

    snapshot: ClusterSnapshot
    namespace: str
    """Of objects that name none."""
    now: datetime
    grouping: Grouping = field(default_factory=Grouping)
    keeps_times: bool = False
    """Whether objects with a creation time keep it."""


def read_documents(documents: Sequence[Document], around: Surroundings) -> Submission:
    """Return the objects of `documents`, as if submitted to the cluster of `around`.

    Raises:
        FileError: a part of them cannot be used; the API server would refuse it too.
    """
    reader = _Reader(around)
    for document in documents:
        reader.take(document)
    return reader.finished()


class _Reader:
    """Reads the documents of one submission."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._given: list[Given] = []
        self._objects: list[tuple[Document, KubeObject]] = []
        self._found = Submission()

    def take(self, document: Document) -> None:
        """Read one document.

        Raises:
            FileError: it cannot be used.
        """
        data = document.data
        if isinstance(data, Mapping) and "kind" not in data and "apiVersion" not in data:
            self._take_scenario(document, parse_scenario(document))
            return
        if isinstance(data, Mapping) and data.get("kind") == "List":
            for index, item in enumerate(data.get("items") or ()):
                self.take(Document(document.file, item, _below(document, ("items", index))))
            return
        self._take_manifest(document, validate(_Manifest, document))

    def finished(self) -> Submission:
        """Return all that was found, as admission and controllers leave it.

        Raises:
            FileError: something is there already, or a priority class is missing.
        """
        self._add_workloads()
        priorities = self._priorities()
        taken = {_name(item) for item in (*self._snapshot.pods, *self._snapshot.groups)}
        made_for = {_owner(group): group for group in self._snapshot.groups}
        objects: list[KubeObject] = []
        for document, found in self._completed():
            item = _with_free_name(found) if _name(found) in taken else found
            kind, meta = type(item).__name__, item.metadata
            title = f"{kind} {meta.namespace}/{meta.name}"
            if isinstance(item, PodGroup) and _owner(item) in made_for and _owner(item):
                owner = meta.owner_references[0]
                title = f"{owner.kind} {meta.namespace}/{owner.name}"
            elif not isinstance(item, Pod | PodGroup) or _name(item) not in taken:
                objects.append(admitted(item, *priorities, document))
                continue
            raise document.error((), f"{title} already exists; use bindery explain")
        made = [item for item in objects if isinstance(item, PodGroup) and _owner(item)]
        pods = [item for item in objects if isinstance(item, Pod)]
        self._found.arrivals = later_pods(made, pods)
        later = {id(arrival.pod) for arrival in self._found.arrivals}
        self._found.objects = [item for item in objects if id(item) not in later]
        return self._found

    @property
    def _snapshot(self) -> ClusterSnapshot:
        return self._around.snapshot

    def _of(self, kind: type[Item]) -> list[Item]:
        return [item for _, item in self._objects if isinstance(item, kind)]

    def _priorities(self) -> tuple[dict[str, int], int]:
        """Return the values of the priority classes, and that of pods that name none."""
        values = {
            **_CRITICAL,
            **{c.metadata.name: c.value for c in self._snapshot.priority_classes},
            **{c.metadata.name: c.value for c in self._of(PriorityClass)},
        }
        defaults = [c for c in self._snapshot.priority_classes if c.global_default]
        return values, max((c.value for c in defaults), default=0)

    def _completed(self) -> Iterator[tuple[Document, KubeObject]]:
        """Yield all objects, and before each pod the claims that are made for it."""
        defaults = Defaults((*self._snapshot.further, *(item for _, item in self._objects)))
        for document, item in self._objects:
            try:
                for each in defaults.complete(item):
                    yield document, each
            except msgspec.ValidationError as error:
                text = f"{type(item).__name__} {item.metadata.name}: {error}"
                raise document.error((), text) from error

    def _add_workloads(self) -> None:
        """Add the pods and PodGroups of all workloads, and the pods that were given.

        Raises:
            FileError: a part of one cannot be used.
        """
        grouped = group(self._given, self._around.grouping, self._directory())
        for kind, found in (
            (PodGroup, grouped.groups),
            (PersistentVolumeClaim, grouped.claims),
            (Pod, grouped.pods),
        ):
            for each in found:
                meta = _metadata(each.document, each.body["metadata"])
                self._add(each.document, _converted(each.document, kind, meta, each.body))
        self._found.passed_over |= grouped.passed_over
        self._found.warnings += grouped.warnings
        self._found.workloads = grouped.workloads

    def _directory(self) -> Directory:
        """Return the queues, namespaces and PriorityClasses of the cluster and of the documents."""
        snapshot = self._snapshot
        return Directory(
            _by_name((*snapshot.queues, *self._of(Queue))),
            _by_name((*snapshot.namespaces, *self._of(Namespace))),
            _by_name((*snapshot.priority_classes, *self._of(PriorityClass))),
            nodes={},  # only reviews of queues ask what nodes offer
        )

    def _add(self, document: Document, item: KubeObject) -> None:
        self._objects.append((document, item))

    def _take_scenario(self, document: Document, scenario: Scenario) -> None:
        """Take the objects of a scenario, except the objects that every scenario has.

        Its jobs are younger than all existing objects.
        """
        takes_s = sum(job.count for job in scenario.jobs)
        self._found.takes_s = max(self._found.takes_s, takes_s)
        shifted = scenario.model_copy(update={"now": self._around.now + timedelta(seconds=takes_s)})
        for item in objects_of(shifted):
            name = item.metadata.name
            built_in = isinstance(item, PriorityClass) and (
                name in BUILT_IN_PRIORITIES and name not in scenario.priority_classes
            )
            if not built_in:
                self._add(document, item)

    def _take_manifest(self, document: Document, manifest: _Manifest) -> None:
        kind, version = manifest.kind, manifest.apiVersion
        meta = self._meta(document, manifest)
        cluster_wide = msgspec.structs.replace(meta, namespace="")
        if version == API_VERSION and kind == "PodGroup":
            wire = _checked(PodGroup, document)
            self._add(document, _converted(document, PodGroup, meta, wire))
        elif version == API_VERSION and kind == "Queue":
            wire = _checked(Queue, document)
            self._add(document, _converted(document, Queue, cluster_wide, wire))
        elif kind in _CLUSTER_WIDE and version == _CLUSTER_WIDE[kind].api_version:
            type_ = _CLUSTER_WIDE[kind].type
            self._add(document, _converted(document, type_, cluster_wide, document.data))
        elif kind in _WHOLE and version == _WHOLE[kind].api_version:
            resource = _WHOLE[kind]
            of_kind = meta if resource.namespaced else cluster_wide
            self._add(document, _converted(document, resource.type, of_kind, document.data))
        else:
            if kind == "Pod":
                _converted(document, Pod, meta, document.data)
            demand_sound(document)
            metadata = msgspec.to_builtins(meta)
            self._given.append(Given(document, {**manifest.model_dump(), "metadata": metadata}))

    def _meta(self, document: Document, manifest: _Manifest) -> Meta:
        """Return the metadata as the API server would complete it."""
        given = dict(manifest.metadata)
        count = len(self._objects) + len(self._given)
        name = given.get("name") or f"{given.get('generateName', '')}{count}"
        if not isinstance(name, str) or not given.get("name", given.get("generateName")):
            raise document.error(("metadata", "name"), "this key is required")
        namespace = given.get("namespace") or self._around.namespace
        given |= {
            "name": name,
            "namespace": namespace,
            "uid": _uid(manifest.kind, namespace, name),
            "creationTimestamp": self._created(document, given),
            "labels": given.get("labels") or {},
            "annotations": given.get("annotations") or {},
        }
        if isinstance(given.get("deletionTimestamp"), datetime):  # YAML reads times
            given["deletionTimestamp"] = timestamp(given["deletionTimestamp"].timestamp())
        meta = _metadata(document, given)
        owners = [
            msgspec.structs.replace(each, uid=_uid(each.kind, namespace, each.name))
            for each in meta.owner_references
        ]
        return msgspec.structs.replace(meta, owner_references=owners)

    def _created(self, document: Document, given: Mapping[str, Any]) -> str:
        """Return the creation time of an object."""
        created = given.get("creationTimestamp") if self._around.keeps_times else None
        if created is None:
            return timestamp(self._around.now.timestamp())
        if isinstance(created, str):
            at_s = seconds(created)
        else:  # YAML reads times
            at_s = created.timestamp() if isinstance(created, datetime) else None
        if at_s is None:
            location = ("metadata", "creationTimestamp")
            text = f"{created!r} is not a time such as 2026-01-31T12:00:00Z"
            raise document.error(location, text)
        return timestamp(at_s)


def _metadata(document: Document, given: Mapping[str, Any]) -> Meta:
    """Return the metadata `given`, of an object in `document` or of one that is made from it.

    Raises:
        FileError: a part of it has the wrong type.
    """
    try:
        return reading.convert(given, Meta)
    except msgspec.ValidationError as error:
        raise document.error(("metadata",), str(error)) from error


def _checked(kind: type[CustomResource], document: Document) -> dict[str, Any]:
    """Return the wire form of a custom resource of which every key is known.

    Raises:
        FileError: a key is wrong.
    """
    data = document.data
    assert isinstance(data, dict), "a manifest was validated"
    inner = {key: data[key] for key in data if key not in ("apiVersion", "kind", "metadata")}
    validated = validate(model_of(kind), Document(document.file, inner, document.root))
    return validated.to_wire()


def _converted(document: Document, kind: type[Item], meta: Meta, data: Any) -> Item:
    """Return `data` as an object of `kind` with `meta`.

    Raises:
        FileError: a part of it has the wrong type.
    """
    rest = {key: with_text_amounts(value) for key, value in data.items() if key != "metadata"}
    try:
        item = reading.convert(rest, kind, strict=False)
    except msgspec.ValidationError as error:
        raise document.error((), f"{kind.__name__} {meta.name}: {error}") from error
    return msgspec.structs.replace(item, metadata=meta)


def _below(document: Document, location: tuple[str | int, ...]) -> Any:
    """Return the YAML node at `location` of `document`."""
    node = document.root
    for part in location:
        for found in _children(node, part):
            node = found
    return node


def _children(node: Any, part: str | int) -> Iterator[Any]:
    if isinstance(part, int):
        yield node.value[part]
    else:
        yield from (value for key, value in node.value if key.value == part)


def _uid(kind: str, namespace: str, name: str) -> str:
    """Return the UID of an object: owner references in files may have UIDs of another cluster."""
    return f"submitted-{kind}-{namespace}-{name}".lower()


def _name(item: KubeObject) -> tuple[str, str, str]:
    return type(item).__name__, item.metadata.namespace, item.metadata.name


def _with_free_name(item: KubeObject) -> KubeObject:
    """Return `item`; a pod whose controller generates names with another one."""
    meta = item.metadata
    owners = {owner.kind for owner in meta.owner_references if owner.controller}
    if not isinstance(item, Pod) or owners.isdisjoint(_GENERATING):
        return item
    meta = msgspec.structs.replace(meta, name=f"{meta.name}-{meta.uid[:5]}")
    return msgspec.structs.replace(item, metadata=meta)


def _owner(group: PodGroup) -> tuple[str, ...]:
    """Return namespace, kind and name of the workload for which the grouper made `group`.

    Empty for a PodGroup that users made.
    """
    owner = grouped(group)
    return (group.metadata.namespace, owner.kind, owner.name) if owner is not None else ()


def _by_name(items: Iterable[Item]) -> dict[tuple[str, str], Item]:
    return {("", item.metadata.name): item for item in items}
