"""Pods whose containers really run, and what they leave to be read."""

from collections.abc import Mapping
from typing import Any

from support import Corner, Gang, wait_for

from bindery.controlplane.realnode.cluster import RealCluster
from bindery.controlplane.realnode.images import BUSYBOX

DEVICE = "example.com/resource"
"""The resource of Kubernetes' sample device plugin."""


def running(script: str, *, devices: int = 0, mounts: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return fields of the spec of a pod that runs `script`.

    `devices`: of the sample device plugin. `mounts`: path in the container -> source of a volume.
    """
    limits = {DEVICE: str(devices)} if devices else {}
    volumes = {f"volume-{number}": path for number, path in enumerate(mounts)}
    container = {
        "name": "worker",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "50m", "memory": "8Mi", **limits}, "limits": limits},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in volumes.items()],
    }
    return {
        "containers": [container],
        "volumes": [{"name": name, **mounts[path]} for name, path in volumes.items()],
        "terminationGracePeriodSeconds": 20,
    }


async def phases(corner: Corner, gang: Gang) -> list[str]:
    return sorted(pod.status.phase or "" for pod in await corner.pods(gang))


async def wait_phase(corner: Corner, gang: Gang, phase: str) -> None:
    async def all_have_it() -> bool:
        return await phases(corner, gang) == [phase] * gang.size

    await wait_for(all_have_it, f"all pods of {gang.name} are {phase}")


def logs(cluster: RealCluster, corner: Corner, pod: str) -> str:
    return cluster.control_plane.kubectl("logs", pod, f"--namespace={corner.namespace}")
