"""Refuses pods that choose GPUs themselves by the variable NVIDIA_VISIBLE_DEVICES. Pure.

NVIDIA's container runtime gives a container the GPUs that the variable names, whatever was
allocated, and a pod's own value replaces that of a device plugin. Called by the plugins that share
GPUs. An image's own value, and variables from a whole ConfigMap (`envFrom`), are not seen here:
docs/gpu-sharing.md names the setting of the runtime that ignores them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bindery.api import gpushare
from bindery.api.shown import quoted
from bindery.binder.plugins.gpusharing.handover import VISIBLE_DEVICES, container_key

_HARMLESS: Final = ("none", "void")
"""Values that give no GPU."""


def problems(pod: Mapping[str, Any]) -> list[str]:
    """Return the problems of the pod's variables, one sentence each."""
    own = _reference(pod)
    found = []
    for name, variable in _variables(pod):
        source = variable.get("valueFrom")
        if source is None:
            value = str(variable.get("value") or "")
            if value not in _HARMLESS:
                found.append(_message(name, f"the value {quoted(value)}"))
        elif (name, source) != own:
            found.append(_message(name, "a value from another object"))
    return found


def _message(container: str, what: str) -> str:
    return (
        f"container {container} sets {VISIBLE_DEVICES} to {what}: GPUs are given by the device "
        f"plugin; only none and void are allowed"
    )


def _variables(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    spec = pod.get("spec") or {}
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            for variable in container.get("env") or ():
                if variable.get("name") == VISIBLE_DEVICES:
                    yield str(container.get("name", "")), variable


def _reference(pod: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the container with a share, and the reference by which it gets its devices."""
    spec = pod.get("spec") or {}
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    prefix = annotations.get(gpushare.CONFIG_MAP_ANNOTATION)
    if not prefix or not gpushare.asks_for_share(annotations):
        return None
    names = [str(each.get("name", "")) for each in spec.get("containers") or ()]
    init = [str(each.get("name", "")) for each in spec.get("initContainers") or ()]
    key = container_key(names, init, annotations.get(gpushare.CONTAINER_ANNOTATION, ""))
    of = init if key.startswith("i") else names
    index = int(key.removeprefix("i"))
    if index >= len(of):
        return None
    source = {"configMapKeyRef": {"name": f"{prefix}-{key}", "key": VISIBLE_DEVICES}}
    return of[index], source
