"""The format of `allocated_pods_state`: the resources that the node has allocated to pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.nodecore.checkpoints import gotext
from bindery.nodecore.checkpoints.gotext import Json
from bindery.nodecore.errors import CorruptCheckpointError

FILE: Final = "allocated_pods_state"


@dataclass(frozen=True)
class Requirements:
    """Resource requirements; amounts are Kubernetes quantities in their canonical form."""

    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AllocatedPod:
    """The resources that are allocated to a pod.

    Attributes:
        containers: container name -> its resources.
        pod_level: the resources of the pod as a whole, None when the pod has none.
    """

    containers: Mapping[str, Requirements] | None
    pod_level: Requirements | None = None


def encode(pods: Mapping[str, AllocatedPod]) -> bytes:
    """Return the file of `pods` (UID -> allocation) with its checksum."""
    entries = {uid: _pod_json(pod) for uid, pod in sorted(pods.items())}
    data = gotext.to_json({"entries": entries} if entries else {}).decode()
    return gotext.to_json({"data": data, "checksum": _checksum(data)})


def decode(blob: bytes) -> dict[str, AllocatedPod]:
    """Return the allocations in `blob` by pod UID.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    content = gotext.from_json(blob)
    data = gotext.field(content, "data", str, "Checkpoint", "")
    stored = gotext.field(content, "checksum", int, "Checkpoint", 0)
    if stored != _checksum(data):
        raise CorruptCheckpointError(stored, _checksum(data))
    entries = gotext.field(gotext.from_json(data), "entries", dict, "Checkpoint", {}) or {}
    return {uid: _pod(pod) for uid, pod in entries.items()}


def _checksum(data: str) -> int:
    return gotext.fnv1a(f"(string){data}")


def _pod_json(pod: AllocatedPod) -> Json:
    containers = pod.containers
    return {
        "ContainerResources": None
        if containers is None
        else {name: _requirements_json(of) for name, of in sorted(containers.items())},
        "PodLevelResources": None if pod.pod_level is None else _requirements_json(pod.pod_level),
    }


def _requirements_json(requirements: Requirements) -> Json:
    fields = {"limits": requirements.limits, "requests": requirements.requests}
    return {name: dict(sorted(amounts.items())) for name, amounts in fields.items() if amounts}


def _pod(pod: Any) -> AllocatedPod:
    containers = gotext.field(pod, "ContainerResources", dict, "PodResourceInfo", {})
    whole = gotext.field(pod, "PodLevelResources", dict, "PodResourceInfo", None)
    return AllocatedPod(
        containers=None
        if containers is None
        else {name: _requirements(of) for name, of in containers.items()},
        pod_level=None if whole is None else _requirements(whole),
    )


def _requirements(found: Any) -> Requirements:
    return Requirements(limits=_amounts(found, "limits"), requests=_amounts(found, "requests"))


def _amounts(found: Any, name: str) -> dict[str, str]:
    place = "ResourceRequirements"
    return gotext.texts(gotext.field(found, name, dict, place, {}) or {}, f"{place}.{name}")
