"""The objects that the grouper watches, as msgspec structs and as dictionaries.

Owners are kept as bytes and decoded when a plan needs them: a Job takes a quarter of the memory of
its dictionary. Managed fields are never kept.
"""

import builtins
from typing import Any, Final

import msgspec

from bindery.api import names
from bindery.grouper.table.facts import PodFacts, Reference
from bindery.kube.objects.podgroups import PodGroupStatus
from bindery.kube.objects.podspec import SchedulingGroup
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, OwnerReference
from bindery.kube.served import ServedKind

_NOTHING: Final = msgspec.Raw(b"null")


class OwnerObject(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """An object that controls pods, or such an object."""

    spec: msgspec.Raw = _NOTHING
    status: msgspec.Raw = _NOTHING


class OwnerResource(Resource[OwnerObject]):
    """A kind of owners."""

    def decode(self, raw: bytes | msgspec.Raw) -> OwnerObject:
        """Decode one object; it does not keep the page alive that it came with."""
        owner = super().decode(raw)
        return msgspec.structs.replace(owner, spec=owner.spec.copy(), status=owner.status.copy())


class _GroupedPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    scheduling_group: SchedulingGroup | None = None


class _GroupedPodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = ""


class GroupedPod(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod, as far as its PodGroup depends on it."""

    spec: _GroupedPodSpec = msgspec.field(default_factory=_GroupedPodSpec)
    status: _GroupedPodStatus = msgspec.field(default_factory=_GroupedPodStatus)


def facts_of(pod: GroupedPod) -> PodFacts:
    """Return what plans need to know of `pod`."""
    meta, spec = pod.metadata, pod.spec
    controller = controller_of(meta.owner_references)
    return PodFacts(
        uid=meta.uid,
        name=meta.name,
        namespace=meta.namespace,
        labels=meta.labels,
        annotations=meta.annotations,
        controller=reference_to(controller, meta.namespace) if controller is not None else None,
        created=meta.creation_timestamp or "",
        phase=pod.status.phase or "Pending",
        scheduler_name=spec.scheduler_name,
        scheduling_group=spec.scheduling_group.pod_group_name if spec.scheduling_group else "",
        priority_class=spec.priority_class_name,
        is_bound=bool(spec.node_name),
        is_deleted=meta.deletion_timestamp is not None,
    )


class WrittenGroup(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A PodGroup as it is stored, with its whole spec."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class _Regarding(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    uid: str = ""


class WrittenEvent(KubeObject, frozen=True, rename="camel", kw_only=True):
    """The fields of an event that show whether a notice was written already."""

    regarding: _Regarding = msgspec.field(default_factory=_Regarding)
    reason: str = ""
    note: str = ""


GROUPED_PODS: Final = Resource("", "v1", "pods", "Pod", True, GroupedPod)
WRITTEN_GROUPS: Final = Resource(
    names.GROUP, names.VERSION, "podgroups", "PodGroup", True, WrittenGroup
)
WRITTEN_EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True, WrittenEvent)


def owner_resource(api_version: str, served: ServedKind, *, whole: bool) -> Resource[OwnerObject]:
    """Return the resource of a kind of owners; not `whole`: only their metadata is sent."""
    group, _, version = api_version.rpartition("/")
    of: builtins.type[Resource[OwnerObject]] = OwnerResource if whole else Resource
    return of(
        group, version, served.name, served.kind, served.namespaced, OwnerObject, partial=not whole
    )


def as_mapping(api_version: str, kind: str, owner: OwnerObject) -> dict[str, Any]:
    """Return `owner` as the dictionary that its manifest would be, without managed fields."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": msgspec.to_builtins(owner.metadata),
        "spec": msgspec.json.decode(owner.spec),
        "status": msgspec.json.decode(owner.status),
    }


def controller_of(references: list[OwnerReference]) -> OwnerReference | None:
    """Return the owner with `controller: true`; an object has at most one."""
    return next((each for each in references if each.controller), None)


def reference_to(owner: OwnerReference, namespace: str) -> Reference:
    """Return the reference that a dependent in `namespace` has to `owner`."""
    return Reference(owner.api_version, owner.kind, owner.name, owner.uid, namespace)
