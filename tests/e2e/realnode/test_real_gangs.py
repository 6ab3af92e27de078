"""The life cycle of gangs on real nodes: containers run, receive signals, and are logged."""

import pytest

from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED
from tests.e2e.realnode.realpods import DEVICE, logs, running, wait_phase
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


async def test_a_gang_runs_to_completion_and_its_logs_are_readable(
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


async def test_a_reclaimed_gang_receives_sigterm_and_its_grace_period(
    corner: Corner, cluster: RealCluster
) -> None:
    """Both queues are entitled to one half of the devices; the first one took all."""
    half = {"resources": {DEVICE: {"quota": 2}}}
    rich, poor = await corner.add_queue("rich", half), await corner.add_queue("poor", half)
    script = "trap 'echo saved >/checkpoints/$HOSTNAME; exit 0' TERM; while :; do sleep 0.1; done"
    directory = {"path": f"{SHARED}/{corner.namespace}", "type": "DirectoryOrCreate"}
    pod = running(script, devices=1, mounts={"/checkpoints": {"hostPath": directory}})
    borrower = Gang("borrower", 4, min_member=2, queue=rich, pod=pod)
    await corner.submit(borrower)
    await wait_phase(corner, borrower, "Running")
    before = {pod.metadata.name for pod in await corner.pods(borrower)}
    claimant = Gang("claimant", 2, queue=poor, pod=running("sleep 600", devices=1))
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
