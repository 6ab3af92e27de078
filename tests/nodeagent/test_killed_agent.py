"""An agent on a real API server is killed with SIGKILL at writes of checkpoints.

`test_hollow_crash` kills at every write of a longer story, without a server.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devcluster.components import Component
from devcluster.plane import ControlPlane
from tests.definitions import install_node_topologies
from tests.nodeagent.hollowagents import Agents, Cluster
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e

HOLD = "hollow.bindery.dev/held"
OPTIONS = (
    "--cpu=16",
    "--memory=32Gi",
    "--gpus=2",
    "--set=numa.sockets=2",
    "--set=numa.threadsPerCore=2",
    "--set=kubelet.cpuManagerPolicy=static",
    "--set=kubelet.memoryManagerPolicy=Static",
    "--set=kubelet.topologyManagerPolicy=single-numa-node",
    "--set=kubelet.reservedSystemCPUs='0,8'",
    "--set=kubelet.systemReserved.memory=1Gi",
    "--set=kubelet.reservedMemory=[{numaNode: 0, limits: {memory: 1Gi}}]",
)
AT_START, FOR_A, FOR_B, WITHOUT_A, FOR_C = 5, 3, 2, 2, 3
"""How many checkpoints are written: of devices, CPUs and memory; `b` has no devices."""
LAST = AT_START + FOR_A + FOR_B + WITHOUT_A + FOR_C


class Story:
    """Two pods come, one goes, one comes; an agent that dies is followed by another."""

    def __init__(
        self,
        agents: Agents,
        cluster: Cluster,
        checkpoints: Path,
        environment: pytest.MonkeyPatch,
    ) -> None:
        self.agents, self.cluster, self.environment = agents, cluster, environment
        self.options = (*OPTIONS, f"--checkpoints={checkpoints}")
        self.deaths = 0
        self.agent: Component | None = None

    def play(self) -> dict[str, Any]:
        """Return the holdings of the pods at the end, and the free resources of the zones."""
        self.agent = self.agents.start(1, *self.options)
        self.environment.delenv("DIE_AT_WRITE")  # of those that follow
        self.bind("a", {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"})
        self.bind("b", {"cpu": "4", "memory": "10Gi"})
        self.cluster.kubectl("delete", "pod", "a", "--wait=false")
        self.until(lambda: "a" not in self.cluster.names("pods"))
        self.bind("c", {"cpu": "6", "memory": "12Gi", "nvidia.com/gpu": "1"})
        node = self.agents.node()
        c = self.cluster.get("pod", "c")["metadata"]["uid"]
        self.until(lambda: c in self.report(node))
        zones = self.cluster.get("noderesourcetopology", node)["zones"]
        left = {
            zone["name"]: {one["name"]: one["available"] for one in zone["resources"]}
            for zone in zones
        }
        return {**{name: self.held(name) for name in ("b", "c")}, **left}

    def bind(self, name: str, limits: dict[str, str]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.agents.node(),
                "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
            },
        }
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
        self.until(lambda: self.cluster.get("pod", name)["status"]["phase"] == "Running")

    def held(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.cluster.get("pod", name)["metadata"]["annotations"][HOLD]
        )
        return found

    def report(self, node: str) -> str:
        """Return the report of the node; empty until an agent has written one."""
        return self.cluster.kubectl(
            "get", "noderesourcetopology", node, "-oyaml", "--ignore-not-found"
        )

    def until(self, holds: Callable[[], bool]) -> None:
        def looked() -> bool:
            assert self.agent is not None
            if not self.agent.process.is_running:
                assert self.deaths == 0, "only one agent was to be killed"
                self.deaths += 1
                self.agent = self.agents.start(1, *self.options)
            return holds()

        self.cluster.eventually(looked, timeout_s=60)


@pytest.fixture(scope="module", autouse=True)
def definition(control_plane: ControlPlane) -> None:
    install_node_topologies(control_plane)


GIB = 2**30
EXPECTED: dict[str, Any] = {
    "b": {
        "main": {
            "cpus": "2-3,10-11",
            "memory": [{"zones": [0], "resource": "memory", "size": 10 * GIB}],
        }
    },
    "c": {
        "main": {
            "cpus": "4-6,12-14",
            "memory": [{"zones": [1], "resource": "memory", "size": 12 * GIB}],
            "devices": {"nvidia.com/gpu": {"1": ["gpu-1"]}},
        }
    },
    "node-0": {"cpu": "2", "memory": str(5 * GIB), "nvidia.com/gpu": "1"},
    "node-1": {"cpu": "2", "memory": str(4 * GIB), "nvidia.com/gpu": "0"},
}
"""The end of the story without a kill."""

WRITES = ["never", *(f"{at} {when}" for at in range(1, LAST + 1) for when in ("before", "after"))]
SAMPLE = [f"{AT_START + 2} before", f"{LAST - FOR_C + 1} after"]


@pytest.mark.parametrize("write", WRITES if IS_LONG else SAMPLE)
def test_pods_hold_the_same_resources_as_without_the_kill(
    write: str,
    agents: Agents,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "dying"))
    monkeypatch.setenv("DIE_AT_WRITE", f"0 {write}" if write == "never" else write)
    story = Story(agents, cluster, tmp_path, monkeypatch)

    assert story.play() == EXPECTED
    assert story.deaths == (write != "never")
