"""`kubectl top` shows what pods use on the agent's node as on a kubelet's."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.errors import ControlPlaneError
from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.administrator import Administrator
from tests.e2e.realnode import metricsserver
from tests.e2e.realnode.agentpods import KUBELET, Pods, in_phase
from tests.e2e.realnode.nodepods import pod
from tests.e2e.support import WAIT_S

pytestmark = [pytest.mark.e2e, pytest.mark.long("runs metrics-server")]

HELD_MIB = 50
HELD_MILLICORES = 200
HOLDS = f"dd if=/dev/zero of=/memory/file bs=1M count={HELD_MIB}; while :; do :; done"
MEMORY: dict[str, Any] = {
    "main": {"volumeMounts": [{"name": "memory", "mountPath": "/memory"}]},
    "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
}


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[RealNode]:
    metricsserver.program()
    with agentnode.added(cluster) as node:
        yield node


@pytest.fixture(scope="module")
def pods(
    cluster: RealCluster,
    administrator: Administrator,
    node: RealNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pods]:
    """A pod on each of the two nodes that holds memory and computes."""
    plane, directory = cluster.control_plane, tmp_path_factory.mktemp("metrics")
    with plane.network.entered(), administrator.fresh_namespace() as namespace:
        pods = Pods(cluster, namespace)
        for where in (KUBELET, node.name):
            pods.create(
                where, pod(limits={"cpu": f"{HELD_MILLICORES}m"}, command=HOLDS, **MEMORY), where
            )
        for where in (KUBELET, node.name):
            pods.until(where, in_phase("Running"))
        with metricsserver.running(plane, Path(directory)):
            yield pods


Lines = dict[str, list[str]]


def top(
    pods: Pods, names: set[str], *words: str, holds: Callable[[Lines], bool] = lambda _: True
) -> Lines:
    """Return the lines of `kubectl top` by name, once `names` are among them and fulfil `holds`."""
    deadline_s = time.monotonic() + 2 * WAIT_S
    problem = ""
    while time.monotonic() < deadline_s:
        try:
            text = pods.kubectl("top", *words, "--no-headers")
        except ControlPlaneError as error:
            problem = str(error)
        else:
            found = {first: rest for first, *rest in map(str.split, text.splitlines())}
            problem = text
            if found.keys() >= names and "unknown" not in text and holds(found):
                return found
        time.sleep(1)
    raise AssertionError(problem)


def test_nodes_of_one_machine_have_alike_figures(pods: Pods, node: RealNode) -> None:
    """Both are asked within seconds, and the machine may do much or little in these."""

    def are_alike(found: Lines) -> bool:
        kubelet, agent = (found[where] for where in (KUBELET, node.name))
        return _alike(kubelet[0], agent[0], 0.2) and _alike(kubelet[2], agent[2], 0.1)

    found = top(pods, {KUBELET, node.name}, "node", holds=are_alike)

    assert _number(found[node.name][0]) > 0
    assert _number(found[node.name][2]) > HELD_MIB


def _alike(kubelet: str, agent: str, portion: float) -> bool:
    return abs(_number(kubelet) - _number(agent)) <= portion * _number(kubelet)


def _number(text: str) -> int:
    """Return a number of `kubectl top` without its unit, m, Mi or %."""
    return int(text.rstrip("mMi%"))


def test_pods_have_the_figures_of_what_they_hold(pods: Pods, node: RealNode) -> None:
    """Their limit of CPU is all that they use, if the machine has it to spare."""

    def have_them(found: Lines) -> bool:
        return all(
            0 < _number(found[where][0]) <= 1.2 * HELD_MILLICORES
            and HELD_MIB <= _number(found[where][1]) < 1.2 * HELD_MIB
            for where in (KUBELET, node.name)
        )

    top(pods, {KUBELET, node.name}, "pod", holds=have_them)


def test_containers_have_figures(pods: Pods, node: RealNode) -> None:
    found = top(pods, {KUBELET, node.name}, "pod", "--containers")

    assert [found[where][0] for where in (KUBELET, node.name)] == ["main", "main"]
