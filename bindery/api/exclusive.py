"""Exclusive domains that JobSet and LeaderWorkerSet ask for, by annotations of their pods.

Each child Job of a JobSet, or group of a LeaderWorkerSet, has a domain of its own: nodes with one
value of the label that the annotation names.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

_UNITS: Final = (
    ("alpha.jobset.sigs.k8s.io/exclusive-topology", "jobset.sigs.k8s.io/job-key"),
    (
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
        "leaderworkerset.sigs.k8s.io/subgroup-key",
    ),
    (
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "leaderworkerset.sigs.k8s.io/group-key",
    ),
)
"""Annotation with a node label -> label with the key of the pods that share a domain."""
ANNOTATIONS: Final = frozenset(annotation for annotation, _ in _UNITS)
LABELS: Final = frozenset(label for _, label in _UNITS)
"""All annotations and labels that are read here."""


class ExclusiveUnit(NamedTuple):
    """Pods that share a domain with no other pods."""

    node_label: str
    key: str


def exclusive_unit(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> ExclusiveUnit | None:
    """Return the unit of a pod; None if it has no exclusive domain."""
    for annotation, label in _UNITS:
        if annotations.get(annotation) and labels.get(label):
            return ExclusiveUnit(annotations[annotation], labels[label])
    return None
