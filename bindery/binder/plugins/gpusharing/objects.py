"""The plugin's objects: pods with their groups, reservation pods, ConfigMaps. Pure.

Used by the other modules of the package.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bindery.api import gpushare
from bindery.api.names import GPU_RESOURCE
from bindery.api.states import ENDED_POD_PHASES
from bindery.binder.plugins.gpusharing.arguments import GpuSharingArguments
from bindery.kube.objects.podspec import Toleration
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import KubeObject, OwnerReference

_CONTAINER: Final = "reservation"
_GRACE_S: Final = 5


class SharerSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The fields of `PodSpec` that shares need."""

    node_name: str = ""
    tolerations: list[Toleration] | None = None
    containers: list["SharerContainer"] = msgspec.field(default_factory=list)
    init_containers: list["SharerContainer"] | None = None


class SharerContainer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A container's name."""

    name: str = ""


class SharerStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The pod's phase, with the reason of its end."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class Sharer(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A pod that has or will get a share of a GPU, or a reservation pod."""

    spec: SharerSpec = msgspec.field(default_factory=SharerSpec)
    status: SharerStatus = msgspec.field(default_factory=SharerStatus)

    @property
    def has_ended(self) -> bool:
        """Whether the pod's containers have ended for good."""
        return self.status.phase in ENDED_POD_PHASES

    @property
    def groups(self) -> tuple[str, ...]:
        """The GPU groups in the pod's labels."""
        return gpushare.groups(self.metadata.labels)

    @property
    def is_reservation(self) -> bool:
        """Whether the pod holds a device for a group."""
        return gpushare.is_reservation(self.metadata.namespace, self.metadata.labels)

    @property
    def index(self) -> str:
        """The device of a reservation pod; "" until the pod has reported it."""
        return self.metadata.annotations.get(gpushare.INDEX_ANNOTATION, "")


# The labels of an unreadable pod name the groups in use.
SHARERS: Final = PODS.decoded_as(Sharer, held=lambda pod, _: pod)


def reservation(
    node: str, group: str, arguments: GpuSharingArguments, tolerations: list[Toleration]
) -> dict[str, Any]:
    """Return the pod that holds a device of `node` for `group`."""
    spec: dict[str, Any] = {
        "nodeName": node,
        "serviceAccountName": arguments.service_account,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _GRACE_S,
        "tolerations": msgspec.to_builtins(tolerations),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_reservation_container(arguments)],
    }
    if arguments.runtime_class:
        spec["runtimeClassName"] = arguments.runtime_class
    if arguments.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in arguments.image_pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": gpushare.reservation_name(node, group),
            "namespace": gpushare.RESERVATION_NAMESPACE,
            "labels": {"app": gpushare.RESERVATION_APP, gpushare.GROUP_LABEL: group},
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
        },
        "spec": spec,
    }


def _reservation_container(arguments: GpuSharingArguments) -> dict[str, Any]:
    resources = arguments.resources
    device = {GPU_RESOURCE: "1"}
    return {
        "name": _CONTAINER,
        "image": arguments.image,
        "args": ["reservation", "hold"],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (
                ("POD_NAME", "metadata.name"),
                ("POD_NAMESPACE", "metadata.namespace"),
            )
        ],
        "resources": {
            "requests": {**resources.requests, **device},
            "limits": {**resources.limits, **device},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def config_map(
    name: str, namespace: str, owner: OwnerReference, data: Mapping[str, str]
) -> dict[str, Any]:
    """Return the ConfigMap that passes devices to a container; the pod owns it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "data": dict(data),
    }
