"""What the interpreter returns: PodGroups, problems, and the objects that it misses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bindery.api import names
from bindery.grouper.table.facts import Reference
from bindery.kube.objects.declaring import to_wire
from bindery.kube.objects.podgroups import PodGroupSpec


class ProblemReason(StrEnum):
    """The reasons of the events at the objects concerned."""

    UNKNOWN_KIND = "UnknownKind"
    """The table has no row for the kind: one group, minimum 1."""
    OWNER_NOT_READABLE = "OwnerNotReadable"
    """An owner may not be read: its own pods are one group, and what is below it groups itself."""
    PATH_NOT_FOUND = "PathNotFound"
    """The object does not have what a path of its row needs."""
    MINIMUM_TOO_HIGH = "MinimumTooHigh"
    """The minimum is higher than the number of pods that there can be."""
    INVALID_VALUE = "InvalidValue"
    """A label, an annotation or a field has a value that means nothing; it is ignored."""
    GROUP_MISSING = "PodGroupMissing"
    """The PodGroup of another API that pods name does not exist."""
    GROUP_NOT_USABLE = "PodGroupNotUsable"
    """A PodGroup of another API cannot be scheduled as it is."""
    PODS_DISAGREE = "PodsDisagree"
    """Parts of a gang ask for different queues or priorities; the first part decides."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something that the user should know, at the object concerned."""

    object: Reference
    reason: ProblemReason
    message: str

    @property
    def is_warning(self) -> bool:
        """Whether the event is a warning; else it informs."""
        return self.reason is not ProblemReason.UNKNOWN_KIND


@dataclass(frozen=True, slots=True, order=True)
class WantedObject:
    """An object that the plan needs and was not given: the caller reads it and plans again.

    Found by `uid` for an owner, else by name and one of `versions`, the versions of the row.
    """

    group: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    versions: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class Group:
    """One PodGroup, as it should be."""

    namespace: str
    name: str
    owner: Reference
    """The object that the PodGroup comes from, and is collected with."""
    spec: PodGroupSpec
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field of the spec -> `Kind/name` of the object that gave its value."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pods: tuple[str, ...] = ()
    """The UIDs of the pods that are members now, sorted."""

    def to_object(self) -> dict[str, Any]:
        """Return the PodGroup as it is written; pure in all fields but `pods`."""
        owner = {
            "apiVersion": self.owner.api_version,
            "kind": self.owner.kind,
            "name": self.owner.name,
            "uid": self.owner.uid,
        }
        metadata: dict[str, object] = {
            "namespace": self.namespace,
            "name": self.name,
            "labels": {**self.labels, names.MADE_BY_LABEL: names.MADE_BY_GROUPER},
            "ownerReferences": [owner],
        }
        annotations = dict(self.annotations)
        if self.sources:
            text = json.dumps(self.sources, sort_keys=True, separators=(",", ":"))
            annotations[names.SOURCES_ANNOTATION] = text
        if annotations:
            metadata["annotations"] = annotations
        return {
            "apiVersion": names.API_VERSION,
            "kind": "PodGroup",
            "metadata": metadata,
            "spec": to_wire(self.spec),
        }


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """All that follows from the given owners and pods. Everything is sorted."""

    groups: tuple[Group, ...] = ()
    problems: tuple[Problem, ...] = ()
    wanted: tuple[WantedObject, ...] = ()
    """Pods that depend on one of these are in no group yet."""
