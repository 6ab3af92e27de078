"""Read a file of manifests, or a scenario, as objects of the cluster it is submitted to.

Called by `bindery whatif`. Objects get what the API server would add: names, times and priorities;
a Job or a Deployment becomes its pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

from bindery.api import podgroup, queue
from bindery.api.base import CustomResource
from bindery.api.names import API_VERSION
from bindery.api.times import seconds, timestamp
from bindery.api.yamlfile import Document, FileError, read, validate
from bindery.kube import reading
from bindery.kube.objects import (
    KubeObject,
    Meta,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
)
from bindery.kube.resources import Resource
from bindery.kube.snapshot import ClusterSnapshot
from bindery.kube.storage import Claim
from bindery.scenario.beginning import objects_of
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import BUILT_IN_PRIORITIES, Scenario
from bindery.scenario.manifests.defaulting import Defaults, admitted
from bindery.scenario.manifests.podtemplates import TEMPLATED, claims_of, pods_of
from bindery.scenario.raw_objects import KINDS

Item = TypeVar("Item", bound=KubeObject)

_AMOUNTS: Final = frozenset({"allocatable", "capacity", "limits", "overhead", "requests"})
"""Keys below which stand quantities by resource."""

_WHOLE: Final[Mapping[str, Resource[Any]]] = {
    resource.kind: resource for resources in KINDS.values() for resource in resources
}
"""Kinds of storage and of devices: taken as they are."""

_CRITICAL: Final = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
"""Priority classes that every API server has."""


@dataclass
class Submission:
    """The objects of a file."""

    objects: list[KubeObject] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """`kind/name` of what brings nothing that is planned -> why."""
    takes_s: int = 0
    """How long submitting takes: jobs of a scenario come one a second."""

    def of(self, kind: type[Item]) -> list[Item]:
        """Return the objects of one kind."""
        return [item for item in self.objects if isinstance(item, kind)]


class _Manifest(BaseModel):
    """The outer form of every manifest."""

    model_config = ConfigDict(extra="allow")

    apiVersion: str  # noqa: N815  # the key in the file
    kind: str
    metadata: dict[str, Any]


def read_submission(
    path: Path, snapshot: ClusterSnapshot, namespace: str, now: datetime
) -> Submission:
    """Return the objects of the file at `path`, as if submitted to `snapshot` at `now`.

    Raises:
        FileError: a part of it cannot be used; the API server would refuse it too.
    """
    documents = read(path)
    if not documents:
        raise FileError(str(path), 1, "the file is empty")
    return read_documents(documents, snapshot, namespace, now)


def read_documents(
    documents: Sequence[Document],
    snapshot: ClusterSnapshot,
    namespace: str,
    now: datetime,
    *,
    keeps_times: bool = False,
) -> Submission:
    """Return the objects of `documents`, as if submitted to `snapshot` at `now`.

    `keeps_times`: objects with a creation time keep it.

    Raises:
        FileError: a part of them cannot be used; the API server would refuse it too.
    """
    reader = _Reader(snapshot, namespace, now, keeps_times=keeps_times)
    for document in documents:
        reader.take(document)
    return reader.finished(documents[0])


class _Reader:
    """Reads one file."""

    def __init__(
        self, snapshot: ClusterSnapshot, namespace: str, now: datetime, *, keeps_times: bool
    ) -> None:
        self._keeps_times = keeps_times
        self._snapshot = snapshot
        self._namespace = namespace
        self._now = now
        self._found = Submission()
        self._taken = {_name(item) for item in (*snapshot.pods, *snapshot.groups)}

    def take(self, document: Document) -> None:
        """Read one document.

        Raises:
            FileError: it cannot be used.
        """
        data = document.data
        if isinstance(data, Mapping) and "kind" not in data and "apiVersion" not in data:
            self._take_scenario(parse_scenario(document))
            return
        if isinstance(data, Mapping) and data.get("kind") == "List":
            for index, item in enumerate(data.get("items") or ()):
                self.take(Document(document.file, item, _below(document, ("items", index))))
            return
        self._take_manifest(document, validate(_Manifest, document))

    def finished(self, first: Document) -> Submission:
        """Return all that was found, with the priorities that admission gives.

        Raises:
            FileError: something is there already, or a priority class is missing.
        """
        values = {
            **_CRITICAL,
            **{c.metadata.name: c.value for c in self._snapshot.priority_classes},
            **{c.metadata.name: c.value for c in self._found.of(PriorityClass)},
        }
        defaults = [c for c in self._snapshot.priority_classes if c.global_default]
        default = max((c.value for c in defaults), default=0)
        objects: list[KubeObject] = []
        for item in self._completed(first):
            if isinstance(item, Pod | PodGroup) and _name(item) in self._taken:
                kind, meta = type(item).__name__, item.metadata
                text = f"{kind} {meta.namespace}/{meta.name} already exists; use bindery explain"
                raise first.error((), text)
            objects.append(admitted(item, values, default, first))
        self._found.objects = objects
        return self._found

    def _completed(self, first: Document) -> Iterator[KubeObject]:
        """Yield all objects, and before each pod the claims that are made for it."""
        defaults = Defaults((*self._snapshot.further, *self._found.objects))
        for item in self._found.objects:
            try:
                yield from defaults.complete(item)
            except msgspec.ValidationError as error:
                meta = item.metadata
                raise first.error((), f"{type(item).__name__} {meta.name}: {error}") from error

    def _take_scenario(self, scenario: Scenario) -> None:
        """Take the objects of a scenario without those that every scenario has.

        Its jobs are younger than all that is there.
        """
        takes_s = sum(job.count for job in scenario.jobs)
        self._found.takes_s = max(self._found.takes_s, takes_s)
        shifted = scenario.model_copy(update={"now": self._now + timedelta(seconds=takes_s)})
        for item in objects_of(shifted):
            name = item.metadata.name
            built_in = isinstance(item, PriorityClass) and (
                name in BUILT_IN_PRIORITIES and name not in scenario.priority_classes
            )
            if not built_in:
                self._found.objects.append(item)

    def _take_manifest(self, document: Document, manifest: _Manifest) -> None:
        kind, version = manifest.kind, manifest.apiVersion
        meta = self._meta(document, manifest)
        if version == API_VERSION and kind == "PodGroup":
            wire = _checked(podgroup.PodGroup, document)
            self._found.objects.append(_converted(document, PodGroup, meta, wire))
        elif version == API_VERSION and kind == "Queue":
            wire = _checked(queue.Queue, document)
            cluster_wide = msgspec.structs.replace(meta, namespace="")
            self._found.objects.append(_converted(document, Queue, cluster_wide, wire))
        elif kind in ("Node", "PriorityClass"):
            cluster_wide = msgspec.structs.replace(meta, namespace="")
            type_ = Node if kind == "Node" else PriorityClass
            self._found.objects.append(_converted(document, type_, cluster_wide, document.data))
        elif kind == "Pod":
            pod = _converted(document, Pod, meta, document.data)
            self._found.objects.append(pod)
        elif kind in TEMPLATED:
            pods = list(pods_of(document, meta))
            if not pods:
                self._pass_over(kind, meta, "it is suspended or requests no pods")
            for pod_meta, data in pods:
                self._found.objects.append(_converted(document, Pod, pod_meta, data))
                for claim_meta, claim in claims_of(document, pod_meta):
                    self._found.objects.append(_converted(document, Claim, claim_meta, claim))
        elif kind in _WHOLE and version == _WHOLE[kind].api_version:
            resource = _WHOLE[kind]
            of_kind = meta if resource.namespaced else msgspec.structs.replace(meta, namespace="")
            self._found.objects.append(_converted(document, resource.type, of_kind, document.data))
        else:
            self._pass_over(kind, meta, "Bindery does not know which pods it creates")

    def _pass_over(self, kind: str, meta: Meta, why: str) -> None:
        self._found.passed_over[f"{kind}/{meta.name}"] = why

    def _meta(self, document: Document, manifest: _Manifest) -> Meta:
        """Return the metadata as the API server would complete it."""
        given = dict(manifest.metadata)
        count = len(self._found.objects)
        name = given.get("name") or f"{given.get('generateName', '')}{count}"
        if not isinstance(name, str) or not given.get("name", given.get("generateName")):
            raise document.error(("metadata", "name"), "this key is required")
        namespace = given.get("namespace") or self._namespace
        given |= {
            "name": name,
            "namespace": namespace,
            "uid": f"submitted-{manifest.kind}-{namespace}-{name}".lower(),
            "creationTimestamp": self._created(document, given),
            "labels": given.get("labels") or {},
            "annotations": given.get("annotations") or {},
        }
        if isinstance(given.get("deletionTimestamp"), datetime):  # YAML reads times
            given["deletionTimestamp"] = timestamp(given["deletionTimestamp"].timestamp())
        try:
            return reading.convert(given, Meta)
        except msgspec.ValidationError as error:
            raise document.error(("metadata",), str(error)) from error

    def _created(self, document: Document, given: Mapping[str, Any]) -> str:
        """Return the creation time of an object."""
        created = given.get("creationTimestamp") if self._keeps_times else None
        if created is None:
            return timestamp(self._now.timestamp())
        if isinstance(created, str):
            at_s = seconds(created)
        else:  # YAML reads times
            at_s = created.timestamp() if isinstance(created, datetime) else None
        if at_s is None:
            location = ("metadata", "creationTimestamp")
            text = f"{created!r} is not a time such as 2026-01-31T12:00:00Z"
            raise document.error(location, text)
        return timestamp(at_s)


def _checked(model: type[CustomResource], document: Document) -> dict[str, Any]:
    """Return the wire form of a custom resource of which every key is known.

    Raises:
        FileError: a key is wrong.
    """
    data = document.data
    assert isinstance(data, dict), "a manifest was validated"
    inner = {key: data[key] for key in data if key not in ("apiVersion", "kind", "metadata")}
    validated = validate(model, Document(document.file, inner, document.root))
    return validated.model_dump(mode="json", by_alias=True, exclude_none=True)


def _converted(document: Document, kind: type[Item], meta: Meta, data: Any) -> Item:
    """Return `data` as an object of `kind` with `meta`.

    Raises:
        FileError: a part of it has the wrong type.
    """
    rest = {key: _with_text_amounts(value) for key, value in data.items() if key != "metadata"}
    try:
        item = reading.convert(rest, kind, strict=False)
    except msgspec.ValidationError as error:
        raise document.error((), f"{kind.__name__} {meta.name}: {error}") from error
    return msgspec.structs.replace(item, metadata=meta)


def _with_text_amounts(value: Any) -> Any:
    """Return `value` with all amounts of resources as text: in YAML they may be numbers."""
    if isinstance(value, list):
        return [_with_text_amounts(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: str(amount) for name, amount in each.items()}
        if key in _AMOUNTS and isinstance(each, dict)
        else _with_text_amounts(each)
        for key, each in value.items()
    }


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


def _name(item: KubeObject) -> tuple[str, str, str]:
    return type(item).__name__, item.metadata.namespace, item.metadata.name
