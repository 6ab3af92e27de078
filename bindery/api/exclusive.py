"""Exclusive domains: requests in annotations of pods, and the record of held domains.

Each child Job of a JobSet, or group of a LeaderWorkerSet, may request a domain of its own: nodes
with one value of the label in the annotation. PodGroups request domains in their topology
constraints.

A pod holds a domain only if it was placed with that constraint. The scheduler passes the levels to
the binder in `pluginData`, and the binder records them on the pod
(`names.EXCLUSIVE_DOMAINS_ANNOTATION`). Owners can change the requests of pods and PodGroups, but
not the record.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec

PLUGIN_DATA: Final = "topology"
"""The key in `pluginData`. No binder plugin is needed to record it."""

Level = Annotated[str, msgspec.Meta(max_length=1024)]

_UNITS: Final = (
    ("alpha.jobset.sigs.k8s.io/exclusive-topology", "jobset.sigs.k8s.io/job-key"),
    (
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
        "leaderworkerset.sigs.k8s.io/subgroup-key",
    ),
    ("leaderworkerset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/group-key"),
)
"""Annotation with a node label -> label with the key that pods of one domain share."""
ANNOTATIONS: Final = frozenset(annotation for annotation, _ in _UNITS)
LABELS: Final = frozenset(label for _, label in _UNITS)
"""All annotations and labels that this module reads."""


class ExclusiveUnit(NamedTuple):
    """Pods that share a domain with no other pods."""

    node_label: str
    key: str

    @property
    def level(self) -> str:
        """The level of the unit's domain in records."""
        return f"{self.node_label} of {self.key}"


def exclusive_unit(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> ExclusiveUnit | None:
    """Return the unit of a pod; None if the pod has no exclusive domain."""
    for annotation, label in _UNITS:
        if annotations.get(annotation) and labels.get(label):
            return ExclusiveUnit(annotations[annotation], labels[label])
    return None


class HeldDomains(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The levels at which a pod holds its node's domain exclusively for its gang."""

    levels: tuple[Level, ...]
    pod: str = ""
    """The UID of the pod, in the record on the pod: annotations are copied from pod to pod."""

    def as_data(self) -> dict[str, Any]:
        """Return the JSON object for `pluginData`."""
        return {"levels": list(self.levels)}

    def record(self, pod_uid: str) -> str:
        """Return the value of the annotation for the pod with `pod_uid`."""
        return msgspec.json.encode(msgspec.structs.replace(self, pod=pod_uid)).decode()


def from_data(data: object) -> HeldDomains | None:
    """Return the domains in `pluginData`; None if there are none.

    Users may create BindRequests with any content.
    """
    if not isinstance(data, Mapping):
        return None
    try:
        return msgspec.convert(dict(data), HeldDomains)
    except msgspec.ValidationError:
        return None


def from_record(text: str | None, pod_uid: str) -> HeldDomains | None:
    """Return the recorded domains; None if `text` is missing, broken or of another pod."""
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=HeldDomains)
    except msgspec.DecodeError:
        return None
    return found if found.pod == pod_uid else None
