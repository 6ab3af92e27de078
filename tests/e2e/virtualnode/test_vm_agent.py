"""The node agent of a machine with two NUMA zones and cgroup v2 does what was predicted."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from devcluster import checkout
from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import VirtualMachine
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.node import RealNode
from tests.definitions import install_node_topologies
from tests.e2e.nodefiles import until
from tests.e2e.support import Corner, Gang

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

SETTINGS = (
    *("topologyManagerPolicy=single-numa-node", "cpuManagerPolicy=static"),
    *("reservedSystemCPUs='0'", "systemReserved.memory=100Mi"),
)
"""CPU 1 of the first zone, and both CPUs of the second one, are for pods."""
RIGHTS = checkout.ROOT / "examples/rights/agent-zones.yaml"
SHOWS_CPUS = "grep Cpus_allowed_list /proc/self/status; trap 'exit 0' TERM; sleep 100000 & wait"
WAIT_S = 600.0
"""The machine is emulated."""


@pytest.fixture(scope="module")
def agent(cluster: RealCluster) -> Iterator[RealNode]:
    plane = cluster.control_plane
    options = [word for setting in SETTINGS for word in ("--set", f"kubelet.{setting}")]
    with plane.network.entered():
        install_node_topologies(plane)
        plane.kubectl("apply", f"--filename={RIGHTS}")
    machine = VirtualMachine()
    with agentnode.added(cluster, 2, *options, services={}, machine=machine) as node:
        yield node


def exclusive(cpus: int) -> dict[str, Any]:
    """Return the spec of a pod on an agent's node, with CPUs of its own."""
    exact = {"cpu": str(cpus), "memory": "32Mi"}
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", SHOWS_CPUS],
        "resources": {"requests": exact, "limits": exact},
    }
    return {
        "containers": [container],
        "nodeSelector": {"nodeagent.bindery.dev/node": "true"},
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
    }


async def one_pod(corner: Corner, gang: Gang, phase: str) -> Pod:
    """Wait until the pod of `gang` has a phase; return it."""
    found: list[Pod] = []

    async def has_it() -> bool:
        found[:] = [one for one in await corner.pods(gang) if one.status.phase == phase]
        return bool(found)

    await until(has_it, f"the pod of {gang.name} is {phase}", WAIT_S)
    return found[0]


def zones(pod: Pod) -> list[int]:
    """Return the zones that the binder has recorded: those of the prediction."""
    text = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
    found = numaplacement.from_record(text, pod.metadata.uid)
    assert found is not None, text
    return found.zones


def cpus(node: RealNode, corner: Corner, pod: Pod) -> tuple[str, str]:
    """Return the CPUs that a container sees, and those in the agent's checkpoint."""
    log = f"/var/log/pods/{corner.namespace}_{pod.metadata.name}_*/main/0.log"
    seen = node.run("sh", "-c", f"cat {log}").split()[-1]
    state = json.loads(node.run("cat", f"{agentnode.DIRECTORY}/cpu_manager_state"))
    return seen, state["entries"][pod.metadata.uid]["main"]


@pytest.mark.timeout(3600)
async def test_pods_get_the_zones_that_were_predicted(corner: Corner, agent: RealNode) -> None:
    async def is_reported() -> bool:
        found = await corner.client.list(NODE_RESOURCE_TOPOLOGIES)
        return [len(one.zones) for one in found if one.metadata.name == agent.name] == [2]

    await until(is_reported, "the agent reports its zones", WAIT_S)
    wide, second = (Gang(name, 1, pod=exclusive(2)) for name in ("wide", "second"))
    narrow = Gang("narrow", 1, pod=exclusive(1))

    await corner.submit(wide)
    first = await one_pod(corner, wide, "Running")
    await corner.submit(narrow)
    other = await one_pod(corner, narrow, "Running")
    assert (zones(first), zones(other)) == ([1], [0])
    assert cpus(agent, corner, first) == ("2-3", "2-3")
    assert cpus(agent, corner, other) == ("1", "1")

    # A CPU of each zone is free now, and no zone has two.
    await corner.client.delete(PODS, other.metadata.name, corner.namespace)
    await corner.submit(second)
    waiting = await one_pod(corner, second, "Pending")
    assert not waiting.spec.node_name
    await corner.client.delete(PODS, first.metadata.name, corner.namespace)
    last = await one_pod(corner, second, "Running")
    assert zones(last) == [1]
    assert cpus(agent, corner, last) == ("2-3", "2-3")
