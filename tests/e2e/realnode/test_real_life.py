"""Gangs that grow, come in stages, make room and move, with containers that really run."""

from collections.abc import Iterator

import pytest

from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED
from devcluster.realnode.images import BUSYBOX
from tests.e2e.realnode.realpods import (
    logs,
    running,
    submit_job,
    wait_phase,
    wait_running,
)
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

HIGH = {"priorityClassName": "build-preemptible"}
"""Above `train`, which gangs have by default."""
SAVES = "trap 'echo saved >/checkpoints/$HOSTNAME; exit 143' TERM; while :; do sleep 0.1; done"


@pytest.fixture
def cordons(cluster: RealCluster) -> Iterator[RealCluster]:
    """All nodes take pods again afterwards."""
    yield cluster
    cluster.control_plane.kubectl("uncordon", *cluster.nodes)


async def test_an_elastic_gang_grows_into_free_devices_and_gives_them_back(corner: Corner) -> None:
    """Two nodes have four devices."""
    occupant = Gang("occupant", 2, pod=running("sleep 600", devices=1))
    await corner.submit(occupant)
    await wait_phase(corner, occupant, "Running")
    elastic = Gang("elastic", 4, min_member=2, pod=running("sleep 600", devices=1))
    await corner.submit(elastic)
    await wait_running(corner, elastic, 2)

    await corner.delete_gang(occupant)
    await wait_running(corner, elastic, 4)
    urgent = Gang("urgent", 2, group=HIGH, pod=running("sleep 600", devices=1))
    await corner.submit(urgent)

    await wait_phase(corner, urgent, "Running")
    await wait_running(corner, elastic, 2)


@pytest.mark.long("its parts are in other tests")
async def test_a_preempted_job_saves_its_state_and_resumes_when_there_is_room(
    corner: Corner, cluster: RealCluster
) -> None:
    directory = {"path": f"{SHARED}/{corner.namespace}", "type": "DirectoryOrCreate"}
    pod = running(SAVES, devices=1, mounts={"/checkpoints": {"hostPath": directory}})
    victim = Gang("victim", 4, pod=pod)
    await submit_job(corner, victim)
    before = await wait_running(corner, victim, 4)
    urgent = Gang("urgent", 3, group=HIGH, pod=running("sleep 600", devices=1))
    await corner.submit(urgent)
    await wait_phase(corner, urgent, "Running")
    saved = {
        file.name
        for node in cluster.nodes.values()
        for file in (node.shared / corner.namespace).glob("*")
    }

    await corner.delete_gang(urgent)

    after = await wait_running(corner, victim, 4)
    assert len(saved) == 4
    assert not before.keys() & after.keys()


async def test_room_of_workers_is_reserved_until_their_leader_passes_its_readiness_probe(
    corner: Corner, cluster: RealCluster
) -> None:
    """Two nodes have four devices; the leader's readiness probe looks for a file."""
    worker = running("sleep 600", devices=1)
    leader = running("sleep 600", devices=1)
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    leader["containers"][0]["readinessProbe"] = probe
    workers = {
        "name": "workers",
        "minMember": 2,
        "podLabels": {"role": "worker"},
        "after": [{"subGroup": "leader", "condition": "Ready"}],
        "template": {"spec": {"containers": worker["containers"]}},
    }
    first = {"name": "leader", "minMember": 1, "podLabels": {"role": "leader"}}
    stages = {"minMember": 1, "subGroups": [first, workers]}
    serve = Gang("serve", 1, group=stages, pod=leader, labels={"role": "leader"})
    await corner.submit(serve)
    await wait_phase(corner, serve, "Running")
    rival = Gang("rival", 2, pod=running("sleep 600", devices=1))
    await corner.submit(rival)
    await corner.wait_condition(rival, "False", "Unschedulable")

    namespace = f"--namespace={corner.namespace}"
    cluster.control_plane.kubectl("exec", "serve-0", namespace, "--", "touch", "/tmp/ready")
    cluster.control_plane.kubectl("wait", "pod/serve-0", namespace, "--for=condition=Ready")
    later = Gang("serve", 3, pod=worker, labels={"role": "worker"})
    for index in (1, 2):  # as their controller does when the leader is ready
        await corner.create_pod(later, index)

    await wait_running(corner, later, 3)
    assert await corner.bound_count(rival) == 0


async def test_a_gang_with_sidecars_completes_with_its_main_containers(
    corner: Corner, cluster: RealCluster
) -> None:
    pod = running("cat /shared/found; sleep 1", mounts={"/shared": {"emptyDir": {}}})
    mounts = pod["containers"][0]["volumeMounts"]
    first = {
        "name": "first",
        "image": BUSYBOX,
        "command": ["sh", "-c", "echo prepared >/shared/found"],
        "volumeMounts": mounts,
    }
    side = {
        "name": "side",
        "image": BUSYBOX,
        "restartPolicy": "Always",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait $!"],
    }
    gang = Gang("prepared", 2, pod={**pod, "initContainers": [first, side]})
    await corner.submit(gang)

    await wait_phase(corner, gang, "Succeeded")

    assert [logs(cluster, corner, f"prepared-{index}") for index in range(2)] == ["prepared\n"] * 2

    async def finished() -> bool:
        return (await corner.group(gang)).status.state == "Finished"

    await wait_for(finished, "the PodGroup says that its gang has ended")


async def test_all_pods_of_a_job_move_when_their_node_is_drained(
    corner: Corner, observer: Observer, cordons: RealCluster
) -> None:
    plane = cordons.control_plane
    plane.kubectl("cordon", "node-2")
    pod = running("trap 'exit 143' TERM; while :; do sleep 0.1; done")
    gang = Gang("moving", 2, pod=pod)
    await submit_job(corner, gang)
    before = await wait_running(corner, gang, 2)
    assert {pod.spec.node_name for pod in before.values()} == {"node-1"}
    plane.kubectl("uncordon", "node-2")

    selector = f"--pod-selector=job-name={gang.name}"
    plane.kubectl("drain", "node-1", selector, "--ignore-daemonsets", timeout_s=120)

    async def has_moved() -> bool:
        found = await wait_running(corner, gang, 2)
        return {pod.spec.node_name for pod in found.values()} == {"node-2"}

    await wait_for(has_moved, "the gang runs on the other node")
