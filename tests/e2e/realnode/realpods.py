"""Pods whose containers really run, and what they leave to be read."""

from collections.abc import Mapping
from typing import Any

from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.kube.objects.watched import Pod
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX
from tests.e2e.support import Corner, Gang, wait_for
from tests.e2e.workloads import JOBS

DEVICE = "example.com/resource"
"""The resource of Kubernetes' sample device plugin."""


def running(
    script: str,
    *,
    devices: int = 0,
    resource: str = DEVICE,
    mounts: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return fields of the spec of a pod that runs `script`.

    `devices`: of `resource`. `mounts`: path in the container -> source of a volume.
    """
    limits = {resource: str(devices)} if devices else {}
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


async def submit_job(corner: Corner, gang: Gang) -> None:
    """Create a Job whose pods are `gang`, with the failure policy that docs/evictions.md names."""
    await corner.create_group(gang)
    policy = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": gang.name},
        "spec": {
            "completions": gang.size,
            "parallelism": gang.size,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 5,
            "podFailurePolicy": {"rules": policy},
            "template": {
                "metadata": {"annotations": {POD_GROUP_ANNOTATION: gang.name}},
                "spec": {"schedulerName": "bindery", "restartPolicy": "Never", **gang.pod},
            },
        },
    }
    await corner.client.create(JOBS, body, corner.namespace)


async def running_pods(corner: Corner, gang: Gang) -> dict[str, Pod]:
    """Return the running pods of `gang` that are not being deleted, by UID."""
    return {
        pod.metadata.uid: pod
        for pod in await corner.pods(gang)
        if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
    }


async def wait_running(corner: Corner, gang: Gang, count: int) -> dict[str, Pod]:
    """Wait until exactly `count` pods of `gang` run, and return them by UID."""

    async def they_run() -> dict[str, Pod] | None:
        found = await running_pods(corner, gang)
        return found if len(found) == count else None

    found = await wait_for(they_run, f"{count} pods of {gang.name} run")
    assert found is not None
    return found


async def phases(corner: Corner, gang: Gang) -> list[str]:
    return sorted(pod.status.phase or "" for pod in await corner.pods(gang))


async def wait_phase(corner: Corner, gang: Gang, phase: str) -> None:
    async def all_have_it() -> bool:
        return await phases(corner, gang) == [phase] * gang.size

    await wait_for(all_have_it, f"all pods of {gang.name} are {phase}")


def logs(cluster: RealCluster, corner: Corner, pod: str) -> str:
    return cluster.control_plane.kubectl("logs", pod, f"--namespace={corner.namespace}")
