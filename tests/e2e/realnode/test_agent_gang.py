"""Scheduler, binder and three agents run a gang: no kubelet has a part in it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from tests.e2e.realnode import agentstorage
from tests.e2e.realnode.realpods import logs, running, wait_phase
from tests.e2e.support import Corner, Gang

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

NUMBERS = (3, 4, 5)
SETTINGS = ("cpuManagerPolicy=static", "reservedSystemCPUs='0'", "systemReserved.memory=100Mi")
SCRIPT = """
set -e
test $(cat /settings/mode) = fast
echo kept >/scratch/file && test $(cat /scratch/file) = kept
echo $HOSTNAME >/data/$HOSTNAME
echo cpus $(grep Cpus_allowed_list /proc/self/status | cut -f2)
until [ -e /scratch/end ]; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def agents(cluster: RealCluster) -> Iterator[list[str]]:
    """The names of three nodes whose agents give exclusive CPUs, each with a CSI driver."""
    options = [word for setting in SETTINGS for word in ("--set", f"kubelet.{setting}")]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                agentnode.added(
                    cluster, number, *options, services={"driver": agentstorage.service()}
                )
            )
            for number in NUMBERS
        ]
        for node in nodes:
            registered = f"jsonpath={{.spec.drivers[0].name}}={agentstorage.DRIVER}"
            cluster.control_plane.kubectl(
                "wait", f"csinode/{node.name}", f"--for={registered}", "--timeout=60s"
            )
        yield [node.name for node in nodes]


async def test_a_gang_with_cpus_and_volumes_runs_on_three_agents(
    corner: Corner, cluster: RealCluster, agents: list[str]
) -> None:
    for body in storage(corner.namespace):
        cluster.control_plane.kubectl("apply", "--filename=-", stdin=json.dumps(body))
    mounts = {
        "/settings": {"configMap": {"name": "settings"}},
        "/scratch": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        "/data": {"persistentVolumeClaim": {"claimName": "data"}},
    }
    pod = running(SCRIPT, mounts=mounts)
    exact = {"cpu": "1", "memory": "32Mi"}
    pod["containers"][0]["resources"] = {"requests": exact, "limits": exact}
    pod["nodeSelector"] = {"nodeagent.bindery.dev/node": "true"}
    gang = Gang("train", len(agents), pod=pod)

    await corner.submit(gang)
    await wait_phase(corner, gang, "Running")

    found = {each.metadata.name: each.spec.node_name for each in await corner.pods(gang)}
    assert sorted(found.values()) == agents, "an agent has one CPU to give"
    for name, node in found.items():
        words = logs(cluster, corner, name).split()
        assert (words[0], words[1].isdecimal()) == ("cpus", True)
        assert words[1] != "0", "this CPU is reserved"
        kept = cluster.nodes[node].run("sh", "-c", "cat /var/lib/driver/data-of-*/train-*")
        assert kept.split() == [name]
        cluster.control_plane.kubectl(
            "exec", name, f"--namespace={corner.namespace}", "--", "touch", "/scratch/end"
        )
    await wait_phase(corner, gang, "Succeeded")


def storage(namespace: str) -> list[dict[str, Any]]:
    """Return a ConfigMap, a CSI driver, a volume of it that all nodes have, and its claim."""
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace},
        "data": {"mode": "fast"},
    }
    handle = f"data-of-{namespace}"
    return [settings, agentstorage.driver(), *agentstorage.volume(namespace, "data", handle)]
