"""The rank of a pod among the pods of its gang, by the labels that controllers write.

Pods with neighbouring ranks communicate most, so they are placed next to each other.
"""

from collections.abc import Mapping
from typing import Final

_GROUP_LABELS: Final = (
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/group-index",
    "ray.io/worker-group-replica-index",
)
"""Labels with the index of a pod's group; the first that is set counts."""
_POD_LABELS: Final = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "ray.io/replica-host-index",
    "grove.io/podclique-pod-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels with the index of a pod in its group; the first that is set counts."""
LABELS: Final = frozenset({*_GROUP_LABELS, *_POD_LABELS})
"""All labels that this module reads."""
_MOST_DIGITS = 18

Rank = tuple[int, ...]
"""The index of the pod's group, if it has one, and of the pod; empty without an index."""


def rank(labels: Mapping[str, str]) -> Rank:
    """Return the rank of a pod with `labels`."""
    pod = _first(_POD_LABELS, labels)
    if pod is None:
        return ()
    group = _first(_GROUP_LABELS, labels)
    return (pod,) if group is None else (group, pod)


def _first(keys: tuple[str, ...], labels: Mapping[str, str]) -> int | None:
    text = next((labels[key] for key in keys if key in labels), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
