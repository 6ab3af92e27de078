"""The required fields of Kubernetes' own kinds of workloads, with the line where one is missing.

Used by `submission`. The definitions of other kinds are unknown here: the plan reports objects
that do not fit their row.
"""

from collections.abc import Mapping
from typing import Any, Final

from bindery.api.yamlfile import Document

_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("replicas",),
    "Job": ("parallelism", "completions"),
    "ReplicaSet": ("replicas",),
    "ReplicationController": ("replicas",),
    "StatefulSet": ("replicas",),
}
_GROUPS: Final = frozenset({"apps/v1", "batch/v1", "v1"})


def demand_sound(document: Document) -> None:
    """Refuse a workload without a pod template, or with a count that is no number.

    Raises:
        FileError: at the key.
    """
    data: Any = document.data
    kind: str = data["kind"]
    where: tuple[str, ...] = ("spec",)
    if kind == "CronJob":
        kind, where = "Job", ("spec", "jobTemplate", "spec")
    if data["apiVersion"] not in _GROUPS or kind not in _COUNTS:
        return
    spec = _mapping(document, where)
    _mapping(document, (*where, "template", "spec"))
    for key in _COUNTS[kind]:
        count = spec.get(key, 1)
        if count is not None and (not isinstance(count, int) or count < 0):
            raise document.error((*where, key), "a number of 0 or more is expected")


def _mapping(document: Document, location: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the mapping at `location` of `document`.

    Raises:
        FileError: there is none.
    """
    found: Any = document.data
    for depth, key in enumerate(location, 1):
        found = found.get(key)
        if not isinstance(found, Mapping):
            raise document.error(location[:depth], "this key is required")
    assert isinstance(found, Mapping), "it has at least one key"
    return found
