"""A real node whose kubelet calls Bindery's device plugin; a file describes its GPUs."""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bindery.api.hami import names
from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES
from devcluster import checkout
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.node import RealNode
from fakes import gpuplugin
from tests.e2e.support import wait_for

NAME: Final = "node-3"
SERVICE: Final = "shares"
GPU: Final = "nvidia.com/gpu"
CARDS: Final = tuple(f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in (1, 2))
MEMORY_MIB: Final = 10_000
SHARES: Final = 4
"""Of each card."""
_PLUGIN: Final = "tests.e2e.realnode.haltingshares"


def gpus(**changes: Any) -> str:
    """Return the file of the node's cards; `changes`: of the first."""
    cards = [
        {"uuid": uuid, "index": index, "model": "NVIDIA Test", "memoryMib": MEMORY_MIB}
        for index, uuid in enumerate(CARDS)
    ]
    cards[0].update(changes)
    return json.dumps({"gpus": cards})


@dataclass(frozen=True)
class SharingNode:
    """The node and its plugin."""

    node: RealNode

    def describe(self, text: str) -> None:
        """Let the file of the cards be `text`."""
        place = self.node.shared / "gpus.json"
        place.with_suffix(".new").write_text(text)
        place.with_suffix(".new").replace(place)

    @property
    def _halt(self) -> Path:
        return self.node.shared / "halt"

    def halt_at(self, step: str) -> None:
        """Let the next handshake halt at `step`."""
        self._halt.with_suffix(".reached").unlink(missing_ok=True)
        self._halt.with_suffix(".new").write_text(step)
        self._halt.with_suffix(".new").replace(self._halt)

    async def wait_halted(self) -> None:
        async def has_halted() -> bool:
            return self._halt.with_suffix(".reached").exists()

        await wait_for(has_halted, "a handshake halts")

    def go_on(self) -> None:
        """Let the handshake go on."""
        self._halt.unlink(missing_ok=True)

    def give_whole_gpus(self) -> None:
        """Replace the plugin by another one, which offers whole GPUs."""
        self.node.hold(SERVICE)
        self.kill_plugin()
        uuids = gpuplugin.devices(NAME, len(CARDS))
        cards = [{"uuid": uuid, "index": index} for index, uuid in enumerate(uuids)]
        self.describe(json.dumps({"gpus": cards}))
        (self.node.shared / "whole").touch()

    def kill_plugin(self) -> None:
        """Kill the plugin with SIGKILL; it is started again."""
        self.node.kill(Path(sys.executable).resolve().name)

    def log(self) -> str:
        """Return the output of the plugin."""
        return (self.node.logs / f"{SERVICE}.log").read_text(errors="replace")


@contextmanager
def added(cluster: RealCluster) -> Iterator[SharingNode]:
    """Start the node with the plugin, and remove it afterwards."""
    kubeconfig = cluster.control_plane.admin_kubeconfig
    command = [
        f"cd {SHARED}; export PYTHONPATH={checkout.ROOT} PYTHONDONTWRITEBYTECODE=1\n",
        f"until [ -e {SHARED}/gpus.json ]; do sleep 0.1; done\n",
        f"exec {sys.executable} -P -m {_PLUGIN} --node={NAME} --kubeconfig={SHARED}/admin.yaml",
        f"--devices={SHARED}/gpus.json --halt={SHARED}/halt",
    ]
    services = {SERVICE: " ".join(command), "whole": whole_gpus(), "observer": observer()}
    node = cluster.add_node(cluster.plan(3, services=services))
    shutil.copyfile(kubeconfig, node.shared / "admin.yaml")
    sharing = SharingNode(node)
    sharing.describe(gpus())
    wait_offered(cluster, len(CARDS) * SHARES)
    yield sharing
    cluster.nodes.pop(NAME).crash()
    cluster.control_plane.kubectl("delete", "node", NAME)


def whole_gpus() -> str:
    """Return the script of another device plugin, which offers whole GPUs once it is asked to."""
    return (
        f"until [ -e {SHARED}/whole ]; do sleep 0.2; done\n"
        f"export PYTHONPATH={checkout.ROOT} PYTHONDONTWRITEBYTECODE=1\n"
        f"exec {sys.executable} -P -m fakes.gpuplugin --node={NAME} --count={len(CARDS)} "
        f"--directory=/var/lib/kubelet/device-plugins"
    )


def observer() -> str:
    """Return the script that observes the other device plugin, by the command of users."""
    return (
        f"until [ -e {SHARED}/whole ]; do sleep 0.2; done\n"
        f"export PYTHONPATH={checkout.ROOT} PYTHONDONTWRITEBYTECODE=1\n"
        f"exec {sys.executable} -P -m bindery.cli.main nodeagent beside --observe "
        f"--node-name={NAME} --kubeconfig={SHARED}/admin.yaml --devices={SHARED}/gpus.json "
        f"--devices-interval=0.5 --use-interval=1 --idle-report-after=5"
    )


def wait_offered(cluster: RealCluster, count: int) -> None:
    """Wait until the node's allocatable has `count` shares."""
    offered = "jsonpath={.status.allocatable." + GPU.replace(".", r"\.") + f"}}={count}"
    cluster.control_plane.kubectl(
        "wait", f"node/{NAME}", f"--for={offered}", "--timeout=90s", timeout_s=100
    )
    time.sleep(0.1)


def container(name: str, memory_mib: int, cores: int = 0, count: int = 1) -> dict[str, Any]:
    """Return a container with shares of `count` cards, which prints its environment."""
    limits = {GPU: str(count), "nvidia.com/gpumem": str(memory_mib)}
    if cores:
        limits["nvidia.com/gpucores"] = str(cores)
    return {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", "env | grep -E 'NVIDIA|CUDA' | sort; echo done; sleep 600"],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi", **limits}, "limits": limits},
    }


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return the spec of a pod."""
    return {"containers": list(containers), "terminationGracePeriodSeconds": 0, **spec}


def variables(text: str) -> dict[str, str]:
    """Return the variables that a container has printed."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


async def lock(client: Client) -> str | None:
    """Return the node's lock."""
    node = await client.get(NODES, NAME)
    return node.metadata.annotations.get(names.NODE_LOCK)


async def wait_unlocked(client: Client, timeout_s: float = 60.0) -> None:
    async def is_free() -> bool:
        return await lock(client) is None

    await wait_for(is_free, "the node's lock is released", timeout_s)


def held_mib(texts: Sequence[str]) -> dict[str, int]:
    """Return card -> memory that these `…-devices-allocated` hold."""
    held: dict[str, int] = {}
    for text in texts:
        for device in text.replace(";", "").split(":"):
            if device:
                uuid, _, memory, _ = device.split(",")
                held[uuid] = held.get(uuid, 0) + int(memory)
    return held
