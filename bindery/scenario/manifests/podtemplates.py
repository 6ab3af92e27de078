"""The pods that a Job, a Deployment or another workload would create. Used by `submission`.

As many as their controller would make at once; of a CronJob, those of one run. Each is owned by it,
so that an evicted one comes back.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from bindery.api.yamlfile import Document
from bindery.kube.objects import Meta, OwnerReference

MOST_PODS: Final = 50_000
"""How many pods of one controller are looked at."""
TEMPLATED: Final = frozenset(
    {"CronJob", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"}
)
"""The kinds whose pods are known from a template."""


def pods_of(document: Document, meta: Meta) -> Iterator[tuple[Meta, dict[str, Any]]]:
    """Yield metadata and manifest of each pod of the controller in `document`, which has `meta`.

    Raises:
        FileError: it has no template, or its count of pods is no number.
    """
    data: Any = document.data
    kind: str = data["kind"]
    where: tuple[str, ...] = ("spec",)
    if kind == "CronJob":
        kind, where = "Job", ("spec", "jobTemplate", "spec")
    spec = _mapping(document, where)
    template = _mapping(document, (*where, "template"))
    _mapping(document, (*where, "template", "spec"))
    owner = OwnerReference(
        api_version=data["apiVersion"], kind=kind, name=meta.name, uid=meta.uid, controller=True
    )
    inner = template.get("metadata") or {}
    is_suspended = data["kind"] == "CronJob" and data["spec"].get("suspend")
    for index in range(0 if is_suspended else _count(document, kind, spec, where)):
        name = f"{meta.name}-{index}"
        volumes = [
            {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}}
            for claim, _ in _claim_templates(document)
        ]
        yield (
            msgspec.structs.replace(
                meta,
                name=name,
                uid=f"{meta.uid}-{index}",
                labels={**(inner.get("labels") or {})},
                annotations={**(inner.get("annotations") or {})},
                owner_references=[owner],
            ),
            {"spec": {**template["spec"], "volumes": _joined(template["spec"], volumes)}},
        )


def _mapping(document: Document, location: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the mapping at `location` of `document`.

    Raises:
        FileError: there is none.
    """
    found: Any = document.data
    for key in location:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise document.error(location, "this key is required")
    return found


def claims_of(document: Document, pod: Meta) -> Iterator[tuple[Meta, dict[str, Any]]]:
    """Yield metadata and manifest of each volume claim that a StatefulSet makes for `pod`."""
    for name, manifest in _claim_templates(document):
        meta = msgspec.structs.replace(
            pod,
            name=f"{name}-{pod.name}",
            uid=f"{pod.uid}-{name}",
            labels={},
            annotations={},
            owner_references=[],
        )
        yield meta, manifest


def _claim_templates(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and manifest of each volume claim template of a StatefulSet."""
    data: Any = document.data
    if data["kind"] != "StatefulSet":
        return
    for index, manifest in enumerate(data["spec"].get("volumeClaimTemplates") or ()):
        name = (manifest.get("metadata") or {}).get("name")
        if not name:
            location = ("spec", "volumeClaimTemplates", index, "metadata", "name")
            raise document.error(location, "this key is required")
        yield name, {"spec": manifest.get("spec") or {}}


def _joined(spec: Mapping[str, Any], claims: list[dict[str, Any]]) -> list[Any]:
    """Return the volumes of `spec` and `claims`, which win over those of equal names."""
    names = {claim["name"] for claim in claims}
    return [v for v in spec.get("volumes") or () if v.get("name") not in names] + claims


def _count(document: Document, kind: str, spec: Mapping[str, Any], where: tuple[str, ...]) -> int:
    """Return the number of pods that exist at once; `where`: the location of `spec`."""
    if kind != "Job":
        key, count = "replicas", spec.get("replicas", 1)
    elif spec.get("suspend"):
        key, count = "suspend", 0
    else:
        key = "parallelism"
        counts = [spec[name] for name in ("parallelism", "completions") if name in spec]
        count = min(counts, default=1) if all(isinstance(c, int) for c in counts) else None
        if "parallelism" not in spec:
            count = min(count or 0, 1)
    if not isinstance(count, int) or count < 0:
        raise document.error((*where, key), "a number of 0 or more is expected")
    if count > MOST_PODS:
        raise document.error(("spec", key), f"at most {MOST_PODS:,} pods are supported")
    return count
