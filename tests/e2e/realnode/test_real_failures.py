"""Processes of nodes and of Bindery end in the middle; kubelets refuse what they cannot hold."""

import json
from collections.abc import Iterator

import pytest
from realpods import logs, running, wait_phase
from support import Corner, Gang, Observer, wait_for

from bindery.controlplane.components import Component
from bindery.controlplane.realnode.cluster import RealCluster
from bindery.controlplane.realnode.images import BUSYBOX
from bindery.controlplane.realnode.node import RealNode

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

COUNTING = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done"


@pytest.fixture
def node(cluster: RealCluster) -> Iterator[RealNode]:
    """The node that a test breaks; afterwards its services run again."""
    node = cluster.nodes["node-1"]
    yield node
    for file in node.static_pods.iterdir():
        file.unlink()
    node.release("kubelet")
    cluster.wait_ready(node.name)


def on(node: RealNode) -> dict[str, dict[str, str]]:
    return {"nodeSelector": {"kubernetes.io/hostname": node.name}}


@pytest.mark.parametrize("service", ["kubelet", "containerd"])
async def test_containers_go_on_when_a_service_of_their_node_is_killed(
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


async def test_a_pod_that_its_kubelet_refuses_is_lost_with_the_reason(
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
