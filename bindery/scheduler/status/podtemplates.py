"""PodTemplates for the pods of a gang, with the fields that an autoscaler needs to find nodes.
Pure.

Environment variables, commands and volumes without a claim are left out, because readers of
PodTemplates may lack the right to read pods.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects.podspec import Container, Toleration
from bindery.kube.objects.watched import Pod

IMAGE: Final = "registry.k8s.io/pause:3.10"
"""Image of containers without one; no container is ever started."""
_COPIED: Final = (
    "priority",
    "schedulerName",
    "overhead",
    "resources",
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    "resourceClaims",
)


@dataclass(slots=True)
class TemplateDraft:
    """The template of some equal pods."""

    spec: dict[str, Any]
    labels: dict[str, str]
    """The labels that all of the pods have."""
    count: int = 0
    digest: str = field(init=False)
    """Equal for equal specs."""

    def __post_init__(self) -> None:
        content = json.dumps(self.spec, sort_keys=True).encode()
        self.digest = hashlib.sha256(content).hexdigest()[:10]


def templates(alike: Iterable[Sequence[Pod]]) -> list[TemplateDraft]:
    """Return one template for all pods equal to an autoscaler, of groups equal to the scheduler."""
    found: dict[str, TemplateDraft] = {}
    for pods in alike:
        draft = TemplateDraft(_pod_spec(pods[0]), pods[0].metadata.labels)
        draft = found.setdefault(draft.digest, draft)
        for pod in pods:
            draft.labels = dict(draft.labels.items() & pod.metadata.labels.items())
        draft.count += len(pods)
    return list(found.values())


def _pod_spec(pod: Pod) -> dict[str, Any]:
    spec, pool = pod.spec, pod.metadata.labels.get(NODE_POOL_LABEL)
    given: dict[str, Any] = without_none(msgspec.to_builtins(spec))
    made: dict[str, Any] = {key: given[key] for key in _COPIED if key in given}
    if pool:  # the pod itself need not select the nodes of its pool
        made["nodeSelector"] = {NODE_POOL_LABEL: pool, **made.get("nodeSelector", {})}
    if spec.tolerations:
        made["tolerations"] = tolerations(spec.tolerations)
    made["containers"] = [_container(each, n) for n, each in enumerate(spec.containers)]
    if spec.init_containers:
        count = len(spec.containers)
        made["initContainers"] = [
            _container(each, count + n) for n, each in enumerate(spec.init_containers)
        ]
    volumes = [
        {
            key: volume[key]
            for key in ("name", "persistentVolumeClaim", "ephemeral")
            if key in volume
        }
        for volume in given.get("volumes", ())
        if "persistentVolumeClaim" in volume or "ephemeral" in volume
    ]
    return made | ({"volumes": volumes} if volumes else {})


def tolerations(given: Iterable[Toleration]) -> list[dict[str, Any]]:
    """Return tolerations in their JSON form, without empty fields."""
    written = (msgspec.to_builtins(each) for each in given)
    return [{key: text for key, text in each.items() if text} for each in written]


def _container(container: Container, number: int) -> dict[str, Any]:
    given = without_none(msgspec.to_builtins(container))
    made = {"name": container.name or f"c{number}", "image": container.image or IMAGE}
    ports = [
        {**port, "containerPort": port["hostPort"]}
        for port in given.get("ports", ())
        if port.get("hostPort")
    ]
    further = {key: given[key] for key in ("resources", "restartPolicy") if key in given}
    return made | further | ({"ports": ports} if ports else {})


def without_none(value: Any) -> Any:
    """Return `value` without fields that are unset.

    An empty selector stays, as it selects all, and so does an empty text, a usual value of labels.
    """
    if isinstance(value, dict):
        kept = {key: without_none(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not None}
    if isinstance(value, list):
        return [without_none(each) for each in value]
    return value
