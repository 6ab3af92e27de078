"""Facts about pods and owners, the input of the interpreter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KubeObject = Mapping[str, Any]
"""An object of the API as JSON has it."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """Names one object, as an owner reference does."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version in the API group."""
        return self.api_version.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The part of a pod that decides about its gang."""

    uid: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    controller: Reference | None
    """The owner with `controller: true`."""
    created: str = ""
    """The time of creation in RFC 3339."""
    phase: str = "Pending"
    scheduler_name: str = ""
    scheduling_group: str = ""
    """`spec.schedulingGroup.podGroupName`."""
    priority_class: str = ""
    """`spec.priorityClassName`."""
    is_bound: bool = False
    is_deleted: bool = False
    """Whether the pod is being deleted."""

    @property
    def reference(self) -> Reference:
        """The pod itself."""
        return Reference("v1", "Pod", self.name, self.uid, self.namespace)


def pod_facts(pod: KubeObject) -> PodFacts:
    """Return the facts of `pod`, a core/v1 Pod as JSON has it."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    return PodFacts(
        uid=metadata.get("uid", ""),
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        labels=mapping(metadata.get("labels")),
        annotations=mapping(metadata.get("annotations")),
        controller=controller_of(pod),
        created=metadata.get("creationTimestamp") or "",
        phase=mapping(pod.get("status")).get("phase") or "Pending",
        scheduler_name=spec.get("schedulerName") or "",
        scheduling_group=mapping(spec.get("schedulingGroup")).get("podGroupName") or "",
        priority_class=spec.get("priorityClassName") or "",
        is_bound=bool(spec.get("nodeName")),
        is_deleted=bool(metadata.get("deletionTimestamp")),
    )


def controller_of(item: KubeObject) -> Reference | None:
    """Return the owner with `controller: true`; None if there is none."""
    metadata = mapping(item.get("metadata"))
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return Reference(
                owner.get("apiVersion", ""),
                owner.get("kind", ""),
                owner.get("name", ""),
                owner.get("uid", ""),
                metadata.get("namespace", ""),
            )
    return None


def reference_of(item: KubeObject) -> Reference:
    """Return the reference to `item`."""
    metadata = mapping(item.get("metadata"))
    return Reference(
        str(item.get("apiVersion", "")),
        str(item.get("kind", "")),
        metadata.get("name", ""),
        metadata.get("uid", ""),
        metadata.get("namespace", ""),
    )


def mapping(value: object) -> Mapping[str, Any]:
    """Return `value` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in the list `value`. The schemas of some kinds accept anything here."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
