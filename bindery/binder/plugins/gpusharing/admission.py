"""Admission of pods with a share: refuses invalid shares and prepares containers.

Pure functions of pod manifests; called by `plugin`. The rules for shares are in
`bindery.api.gpushare`, which the scheduler uses too.
"""

import secrets
from typing import Any, Final

from bindery.api import gpushare
from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, CONTAINER_ANNOTATION, GpuAsk
from bindery.binder.plugins.gpusharing.handover import (
    OLD_PORTION,
    PORTION,
    VISIBLE_DEVICES,
    container_key,
)
from bindery.binder.plugins.interface import PodManifest

_MOST_BASE: Final = 30
"""Maximum length of a base name: with letters and suffixes, a volume's name has at most 63."""
_SUFFIX: Final = "shared-gpu"


def problems(pod: PodManifest) -> list[str]:
    """Return the problems of the share of a GPU that `pod` requests."""
    spec = pod.get("spec") or {}
    containers = [*_containers(spec), *_init_containers(spec)]
    resources = frozenset(
        name
        for container in containers
        for kind in ("requests", "limits")
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items()
        if str(amount) != "0"
    )
    names = [str(container.get("name", "")) for container in containers]
    return gpushare.problems(GpuAsk(_annotations(pod), names, resources))


def prepared(pod: PodManifest) -> PodManifest:
    """Return `pod` with an environment that refers to its devices, if it requests a share.

    References in a copied pod to the original's devices are removed.
    """
    annotations = _annotations(pod)
    if not gpushare.asks_for_share(annotations):
        return pod
    metadata = dict(pod.get("metadata") or {})
    annotations = {
        name: value
        for name, value in annotations.items()
        if name not in (gpushare.RECEIVED_TYPE_ANNOTATION, gpushare.RECORD_ANNOTATION)
    }
    if CONFIG_MAP_ANNOTATION not in annotations:
        annotations[CONFIG_MAP_ANNOTATION] = _prefix(metadata)
    prefix = annotations[CONFIG_MAP_ANNOTATION]
    labels = {
        name: value
        for name, value in (metadata.get("labels") or {}).items()
        if not gpushare.is_group_label(name)
    }
    metadata |= {"annotations": annotations, "labels": labels}
    spec = _with_environment(pod["spec"], annotations, prefix)
    return {**pod, "metadata": metadata, "spec": spec}


def _with_environment(spec: dict[str, Any], annotations: dict[str, str], prefix: str) -> Any:
    wanted = annotations.get(CONTAINER_ANNOTATION, "")
    key = container_key(
        [str(container.get("name", "")) for container in _containers(spec)],
        [str(container.get("name", "")) for container in _init_containers(spec)],
        wanted,
    )
    kind = "initContainers" if key.startswith("i") else "containers"
    index, name = int(key.removeprefix("i")), f"{prefix}-{key}"
    containers = list(spec.get(kind) or [])
    if index < len(containers):
        containers[index] = _with_config_map(containers[index], name)
    volumes = [each for each in spec.get("volumes") or [] if each.get("name") != f"{name}-vol"]
    volumes.append({"name": f"{name}-vol", "configMap": {"name": name, "defaultMode": 0o644}})
    return {**spec, kind: containers, "volumes": volumes}


def _with_config_map(container: dict[str, Any], config_map: str) -> dict[str, Any]:
    """Return `container` with variables from the ConfigMaps in place of its own."""
    names = (VISIBLE_DEVICES, PORTION, OLD_PORTION)
    own = [each for each in container.get("env") or [] if each.get("name") not in names]
    from_config_map = [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}
        for name in names
    ]
    source = {"configMapRef": {"name": f"{config_map}-evar", "optional": True}}
    sources = [each for each in container.get("envFrom") or [] if each != source]
    return {**container, "env": [*own, *from_config_map], "envFrom": [*sources, source]}


def _prefix(metadata: dict[str, Any]) -> str:
    """Return a unique prefix for the pod's ConfigMaps; the pod's own name may not be set yet."""
    owners = metadata.get("ownerReferences") or [{}]
    base = owners[0].get("name") or metadata.get("name") or metadata.get("generateName") or "pod"
    drawn = secrets.token_hex(4)[:7]
    return f"{str(base)[:_MOST_BASE].rstrip('.-')}-{drawn}-{_SUFFIX}"


def _annotations(pod: PodManifest) -> dict[str, str]:
    return {**((pod.get("metadata") or {}).get("annotations") or {})}


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("containers") or [])


def _init_containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("initContainers") or [])
