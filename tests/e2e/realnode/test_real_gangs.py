"""The life of gangs on real nodes: containers run, get their signals, and are logged."""

from typing import Any

import pytest
from support import Corner, Gang, Observer, wait_for

from bindery.controlplane.realnode.cluster import RealCluster
from bindery.controlplane.realnode.configuration import SHARED
from bindery.controlplane.realnode.images import BUSYBOX

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


def running(script: str, **resources: Any) -> dict[str, Any]:
    """Return the fields of a pod that runs `script`; `resources`: its limits too."""
    limits = {name.replace("_", "/"): value for name, value in resources.items()}
    container = {
        "name": "worker",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "50m", "memory": "8Mi", **limits}, "limits": limits},
    }
    return {"containers": [container], "terminationGracePeriodSeconds": 20}


async def phases(corner: Corner, gang: Gang) -> list[str]:
    return sorted(pod.status.phase or "" for pod in await corner.pods(gang))


async def wait_phase(corner: Corner, gang: Gang, phase: str) -> None:
    async def all_have_it() -> bool:
        return await phases(corner, gang) == [phase] * gang.size

    await wait_for(all_have_it, f"all pods of {gang.name} are {phase}")


def logs(cluster: RealCluster, corner: Corner, pod: str) -> str:
    return cluster.control_plane.kubectl("logs", pod, f"--namespace={corner.namespace}")


async def test_a_gang_runs_to_its_end_and_its_logs_can_be_read(
    corner: Corner, observer: Observer, cluster: RealCluster
) -> None:
    gang = Gang(
        "train", 4, pod=running("echo rank $HOSTNAME; until [ -e /tmp/end ]; do sleep 0.2; done")
    )
    await corner.submit(gang)

    await wait_phase(corner, gang, "Running")

    assert (await corner.group(gang)).spec.min_member == 4
    for index in range(4):
        assert logs(cluster, corner, f"train-{index}") == f"rank train-{index}\n"
        namespace = f"--namespace={corner.namespace}"
        cluster.control_plane.kubectl(
            "exec", f"train-{index}", namespace, "--", "touch", "/tmp/end"
        )
    await wait_phase(corner, gang, "Succeeded")

    async def finished() -> bool:
        return (await corner.group(gang)).status.state == "Finished"

    await wait_for(finished, "the PodGroup says that its gang has ended")


async def test_a_reclaimed_gang_gets_sigterm_and_its_grace_period(
    corner: Corner, cluster: RealCluster
) -> None:
    """Both queues are entitled to one half of the devices; the first one took all."""
    half = {"resources": {"example.com/resource": {"quota": 2}}}
    rich, poor = await corner.add_queue("rich", half), await corner.add_queue("poor", half)
    device = {"example.com_resource": "1"}
    script = "trap 'echo saved >/checkpoints/$HOSTNAME; exit 0' TERM; while :; do sleep 0.1; done"
    pod = running(script, **device)
    directory = f"{SHARED}/{corner.namespace}"
    pod["containers"][0]["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
    pod["volumes"] = [
        {"name": "checkpoints", "hostPath": {"path": directory, "type": "DirectoryOrCreate"}}
    ]
    borrower = Gang("borrower", 4, min_member=2, queue=rich, pod=pod)
    await corner.submit(borrower)
    await wait_phase(corner, borrower, "Running")
    before = {pod.metadata.name for pod in await corner.pods(borrower)}
    claimant = Gang("claimant", 2, queue=poor, pod=running("sleep 600", **device))
    await corner.submit(claimant)

    await wait_phase(corner, claimant, "Running")

    left = {pod.metadata.name for pod in await corner.pods(borrower)}
    saved = {
        file.name
        for node in cluster.nodes.values()
        for file in (node.shared / corner.namespace).glob("*")
    }
    assert len(left) == 2
    assert saved == before - left
