"""Processes of nodes and of Bindery are killed; kubelets refuse pods that do not fit."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from devcluster.components import Component
from devcluster.realnode import configuration
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.node import RealNode
from tests.e2e.realnode.realpods import (
    logs,
    running,
    running_pods,
    submit_job,
    wait_phase,
    wait_running,
)
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

COUNTING = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done"


@pytest.fixture
def node(cluster: RealCluster) -> Iterator[RealNode]:
    """The node that a test breaks; afterwards its services run again."""
    yield cluster.nodes["node-1"]
    node = cluster.nodes["node-1"]  # another one after a restart
    for file in node.static_pods.iterdir():
        file.unlink()
    node.release("kubelet")
    cluster.wait_ready(node.name)


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a container, as far as these tests read it."""

    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")


class RestartedStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a pod, as far as these tests read it."""

    container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)


class RestartedPod(KubeObject, frozen=True):
    """A pod with its containers' ids."""

    status: RestartedStatus = RestartedStatus()


RESTARTED_PODS = Resource("", "v1", "pods", "Pod", True, RestartedPod)


async def kill_container(corner: Corner, node: RealNode, pod: str) -> None:
    """End the only container of a pod by SIGKILL, as an out-of-memory killer does."""
    found = await corner.client.get(RESTARTED_PODS, pod, corner.namespace)
    (container,) = found.status.container_statuses
    name = container.container_id.removeprefix("containerd://")
    socket = f"--address={configuration.RUNTIME_SOCKET}"
    node.run("ctr", socket, "--namespace=k8s.io", "task", "kill", "--signal=SIGKILL", name)


def on(node: RealNode) -> dict[str, dict[str, str]]:
    return {"nodeSelector": {"kubernetes.io/hostname": node.name}}


@pytest.mark.parametrize("service", ["kubelet", "containerd"])
async def test_containers_continue_when_a_service_of_their_node_is_killed(
    corner: Corner, observer: Observer, cluster: RealCluster, node: RealNode, service: str
) -> None:
    gang = Gang("counter", 2, pod=running(COUNTING) | on(node))
    await corner.submit(gang)
    await wait_phase(corner, gang, "Running")

    node.kill(service)
    node.wait_for_runtime()
    cluster.wait_ready(node.name)
    late = Gang("late", 1, pod=running("echo late") | on(node))
    await corner.submit(late)

    await wait_phase(corner, late, "Succeeded")
    await wait_phase(corner, gang, "Running")
    counted = logs(cluster, corner, "counter-0").split()
    assert counted == [str(number) for number in range(1, len(counted) + 1)]
    assert (await corner.group(gang)).status.state == "Running"
    assert not await corner.events("Evicted")


@pytest.mark.long("the kubelet's own work")
async def test_a_killed_container_is_restarted_in_its_pod(
    corner: Corner, observer: Observer, node: RealNode
) -> None:
    gang = Gang("again", 2, pod=running("sleep 600") | on(node) | {"restartPolicy": "OnFailure"})
    await corner.submit(gang)
    before = await wait_running(corner, gang, 2)

    await kill_container(corner, node, "again-0")

    async def is_started_again() -> bool:
        pod = await corner.client.get(RESTARTED_PODS, "again-0", corner.namespace)
        return [one.restart_count for one in pod.status.container_statuses] == [1]

    await wait_for(is_started_again, "the container is started again")
    assert (await wait_running(corner, gang, 2)).keys() == before.keys()
    assert not await corner.events("Evicted")


async def test_a_job_with_a_killed_container_is_complete_again(
    corner: Corner, observer: Observer, node: RealNode
) -> None:
    gang = Gang("whole", 2, pod=running("sleep 600") | on(node))
    await submit_job(corner, gang)
    before = await wait_running(corner, gang, 2)
    (killed, kept) = sorted(before)

    await kill_container(corner, node, before[killed].metadata.name)

    async def is_whole() -> bool:
        found = (await running_pods(corner, gang)).keys()
        return len(found) == 2 and kept in found and killed not in found

    await wait_for(is_whole, "another pod is in the place of the one that failed")


async def test_jobs_of_a_node_that_loses_power_run_again(
    corner: Corner, observer: Observer, cluster: RealCluster, node: RealNode
) -> None:
    """Its disk is lost, too: the node comes back empty, under its name."""
    gang = Gang("back", 2, pod=running("sleep 600") | on(node))
    await submit_job(corner, gang)
    before = await wait_running(corner, gang, 2)

    cluster.nodes.pop(node.name).crash()
    cluster.add_node(node.plan)

    async def others_run() -> bool:
        found = (await running_pods(corner, gang)).keys()
        return len(found) == 2 and not found & before.keys()

    await wait_for(others_run, "the gang runs again")


async def test_a_pod_refused_by_its_kubelet_fails_with_the_reason(
    corner: Corner, node: RealNode
) -> None:
    """The scheduler cannot know of a static pod while its kubelet is down."""
    node.hold("kubelet")
    node.kill("kubelet")
    static = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "static", "namespace": "default"},
        "spec": {
            "containers": [
                {
                    "name": "static",
                    "image": BUSYBOX,
                    "command": ["sleep", "600"],
                    "resources": {"requests": {"cpu": "1500m"}},
                }
            ]
        },
    }
    (node.static_pods / "static.json").write_text(json.dumps(static))
    pod = running("sleep 600") | on(node)
    pod["containers"][0]["resources"]["requests"]["cpu"] = "1"
    gang = Gang("refused", 1, pod=pod)
    await corner.submit(gang)
    await corner.wait_bound(gang)

    node.release("kubelet")

    await wait_phase(corner, gang, "Failed")
    (refused,) = await corner.pods(gang)
    assert refused.status.reason == "OutOfcpu"

    async def is_told() -> bool:
        condition = await corner.condition(gang)
        return condition is not None and "OutOfcpu" in condition.message

    await wait_for(is_told, "the PodGroup has the kubelet's reason")


@pytest.mark.parametrize("component", ["scheduler", "binder"])
async def test_a_gang_runs_although_a_component_is_killed_after_its_submission(
    corner: Corner, observer: Observer, component: str, request: pytest.FixtureRequest
) -> None:
    killed: Component = request.getfixturevalue(component)
    gang = Gang("survivor", 4, pod=running("sleep 600"))
    await corner.submit(gang)
    killed.kill()

    killed.restart()

    await wait_phase(corner, gang, "Running")
