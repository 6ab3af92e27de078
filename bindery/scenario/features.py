"""The fields of a pod that make it need a feature of its node's kubelet.

Used by `objects`: a scenario names the feature, and `kube.objects.declaredfeatures` reads the
fields. Pure.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from bindery.kube.objects.podspec import Container, RestartRule, VolumeMount


def spec_fields(features: Collection[str]) -> dict[str, Any]:
    """Return the fields of the pod's spec that need one of `features`."""
    if "UserNamespacesHostNetworkSupport" not in features:
        return {}
    return {"host_network": True, "host_users": False}


def needing(features: Collection[str], containers: list[Container]) -> list[Container]:
    """Return `containers`, the first with the fields that need one of `features`."""
    changes: dict[str, Any] = {}
    if "RestartAllContainersOnContainerExits" in features:
        changes["restart_policy_rules"] = [RestartRule(action="RestartAllContainers")]
    if "VolumeBindMountOptions" in features:
        changes["volume_mounts"] = [VolumeMount(bind_mount_options=["noexec"])]
    return [msgspec.structs.replace(containers[0], **changes), *containers[1:]]
