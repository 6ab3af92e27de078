"""A claim grows while its pod runs: the file system grows, as on a node with a kubelet.

The kernel lets a mounted ext4 grow only with CAP_SYS_RESOURCE, which containers and many machines
for tests lack, so the nodes are virtual machines. The part of the controllers, which grow disks
before nodes do, is played by the test.
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import VirtualMachine
from devcluster.realnode.node import RealNode
from devcluster.realnode.plane import RealControlPlane
from tests.administrator import Administrator
from tests.e2e.realnode import agentstorage
from tests.e2e.realnode.agentpods import Pods, in_phase
from tests.e2e.realnode.nodepods import pod
from tests.e2e.virtualnode.conftest import DRIVER
from tests.nodeagent.volumes import csidriver

TIMEOUT_S = 3600
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long("two emulated machines"),
    pytest.mark.timeout(TIMEOUT_S),
]

CLASS = "growing"
SIZE, LARGER = "32Mi", "64Mi"
LARGER_KIB = 50_000
"""What a file system of the larger size has at least, and one of the smaller size has not."""
SHOWS_ITS_SIZE = f"""
echo kept >/data/file
is_small() {{ [ "$(df -Pk /data | tail -n 1 | awk '{{ print $2 }}')" -lt {LARGER_KIB} ]; }}
is_small && echo small
while is_small; do sleep 1; done
[ "$(cat /data/file)" = kept ] && echo grown
trap 'exit 0' TERM; sleep 100000 & wait
"""
WAIT_S = 600.0
"""The machines are emulated."""


@pytest.fixture(scope="module")
def nodes(cluster: RealCluster, node: RealNode) -> Iterator[list[RealNode]]:
    """One node with a kubelet, and one with the agent, each with the CSI driver."""
    plane, machine = cluster.control_plane, VirtualMachine()
    services = {"driver": agentstorage.service()}
    (node.shared / DRIVER.rpartition("/")[2]).touch()
    with agentnode.added(cluster, 2, services=services, machine=machine) as other:
        nodes = [node, other]
        for each in nodes:
            wait_registered(plane, each.name)
        yield nodes


def wait_registered(plane: RealControlPlane, node: str) -> None:
    """Wait until the node has registered the driver."""
    for what in ("create", f"jsonpath={{.spec.drivers[0].name}}={csidriver.NAME}"):
        words = (f"csinode/{node}", f"--for={what}", f"--timeout={WAIT_S:.0f}s")
        plane.kubectl("wait", *words, timeout_s=WAIT_S)


@pytest.fixture(scope="module")
def pods(
    cluster: RealCluster, administrator: Administrator, nodes: list[RealNode]
) -> Iterator[Pods]:
    with cluster.control_plane.network.entered(), administrator.fresh_namespace() as namespace:
        yield Pods(cluster, namespace, WAIT_S)


def apply(pods: Pods, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        pods.kubectl("apply", "--filename=-", stdin=json.dumps(body))


def storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": csidriver.NAME,
        "allowVolumeExpansion": True,
    }


def disk(pods: Pods, claim: str) -> list[dict[str, Any]]:
    """Return a volume with a file system of its own, and its claim."""
    bodies = agentstorage.volume(pods.namespace, claim, f"{csidriver.EXT4}-{claim}")
    for body in bodies:
        body["spec"] |= {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"]}
    volume, claimed = (body["spec"] for body in bodies)
    volume |= {"capacity": {"storage": SIZE}, "persistentVolumeReclaimPolicy": "Retain"}
    claimed["resources"] = {"requests": {"storage": SIZE}}
    return bodies


def grow(pods: Pods, claim: str) -> None:
    """Ask for more as a user does, and grow the disk as the controllers do."""
    wanted = {"storage": LARGER}
    pending = {
        "allocatedResources": wanted,
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
    }
    for name, body, *options in (
        (f"pvc/{claim}", {"spec": {"resources": {"requests": wanted}}}),
        (f"pv/{claim}-of-{pods.namespace}", {"spec": {"capacity": wanted}}),
        (f"pvc/{claim}", {"status": pending}, "--subresource=status"),
    ):
        pods.kubectl("patch", name, f"--patch={json.dumps(body)}", *options)


def log(pods: Pods, node: RealNode) -> list[str]:
    """Return what the node's pod has printed; emulated nodes answer kubectl too late."""
    path = f"/var/log/pods/{pods.namespace}_{node.name}_*/main/0.log"
    lines = node.run("sh", "-c", f"cat {path}").splitlines()
    return [line.split()[-1] for line in lines if line]


def has_printed(pods: Pods, node: RealNode, word: str) -> bool:
    return word in log(pods, node)


def events(pods: Pods, name: str) -> list[tuple[str, str]]:
    """Return kind and message of the events about the size of the pod's volume."""
    field = f"--field-selector=involvedObject.kind=Pod,involvedObject.name={name}"
    found = json.loads(pods.kubectl("get", "events", field, "--output=json"))["items"]
    return [
        (one["type"], one["message"].replace(name, "NODE"))
        for one in found
        if "Resize" in one["reason"]
    ]


def has_event(pods: Pods, node: RealNode) -> bool:
    return bool(events(pods, node.name))


def claim_status(pods: Pods, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pods.kubectl("get", "pvc", name, "--output=json"))["status"]
    return found


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(1)


def test_a_file_system_grows_in_use_as_on_a_node_with_a_kubelet(
    pods: Pods, nodes: list[RealNode]
) -> None:
    apply(pods, agentstorage.driver(), storage_class())
    for node in nodes:
        apply(pods, *disk(pods, node.name))
        mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": node.name}}
        spec = pod(command=SHOWS_ITS_SIZE, main=mount, volumes=[volume], hostNetwork=True)
        pods.create(node.name, spec, node.name)
    for node in nodes:
        pods.until(node.name, in_phase("Running"))
        wait_until(partial(has_printed, pods, node, "small"), f"{node.name} is small")
    first = [pods.status(node.name)["containerStatuses"] for node in nodes]

    for node in nodes:
        grow(pods, node.name)
    for node in nodes:
        wait_until(partial(has_printed, pods, node, "grown"), f"{node.name} has grown")
        wait_until(partial(has_event, pods, node), f"{node.name} has an event")

    kubelet, agent = (claim_status(pods, node.name) for node in nodes)
    assert agent == kubelet
    assert agent["capacity"] == {"storage": LARGER}
    assert not agent.keys() & {"conditions", "allocatedResourceStatuses"}
    kubelets, agents = (events(pods, node.name) for node in nodes)
    assert agents == kubelets
    assert [log(pods, node) for node in nodes] == [["small", "grown"]] * 2
    assert [pods.status(node.name)["containerStatuses"] for node in nodes] == first
