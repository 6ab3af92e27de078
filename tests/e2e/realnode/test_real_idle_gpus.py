"""A gang that stops using its GPUs is named, and is the first that a reclaim takes.

The kubelet, the containers and the device plugin's calls are real. A file has the GPUs and their
use, as no machine of the tests has any.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from bindery.api.names import GPU_INDEXES_ANNOTATION, GPUS_IDLE_SINCE_ANNOTATION
from bindery.api.states import GPUS_IDLE
from bindery.kube.objects.resources import PODS
from devcluster import checkout, kubeconfig, nodeaccount
from devcluster.realnode import configuration
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED
from devcluster.realnode.node import RealNode
from fakes import gpuplugin
from tests.e2e.realnode.realpods import running, wait_phase
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

NAME: Final = "node-3"
COUNT: Final = 2
GPU: Final = gpuplugin.RESOURCE
_ENVIRONMENT: Final = f"export PYTHONPATH={checkout.ROOT} PYTHONDONTWRITEBYTECODE=1"


@dataclass
class UsedGpus:
    """The node's GPUs, and how much each is used."""

    node: RealNode
    percents: list[int] = field(default_factory=lambda: [0] * COUNT)

    def use(self, index: int, percent: int) -> None:
        self.percents[index] = percent
        self.write()

    def kill(self) -> None:
        """Kill the agent, and the device plugin too; both start again."""
        self.node.kill(Path(sys.executable).resolve().name)

    def write(self) -> None:
        gpus = [
            {"uuid": uuid, "index": index, "utilizationPercent": self.percents[index]}
            for index, uuid in enumerate(gpuplugin.devices(NAME, COUNT))
        ]
        target = self.node.shared / "gpus.json"
        target.with_suffix(".new").write_text(json.dumps({"gpus": gpus}))
        target.with_suffix(".new").replace(target)


@contextmanager
def added(cluster: RealCluster) -> Iterator[UsedGpus]:
    """Start the node with the device plugin and the agent, and remove it afterwards."""
    plane = cluster.control_plane
    nodeaccount.apply(plane, {"devices": {"enabled": True}})
    services = {"gpus": _plugin(), "beside": _agent()}
    node = cluster.add_node(cluster.plan(3, services=services))
    authority = (plane.state_dir / "certificates" / "apiserver.crt").read_bytes()
    server = kubeconfig.Server(configuration.API_SERVER, authority)
    token = nodeaccount.token(plane, NAME)
    kubeconfig.write(node.shared / "beside.kubeconfig", server, "beside", token)
    gpus = UsedGpus(node)
    gpus.write()
    offered = "jsonpath={.status.allocatable." + GPU.replace(".", r"\.") + f"}}={COUNT}"
    plane.kubectl("wait", f"node/{NAME}", f"--for={offered}", "--timeout=90s", timeout_s=100)
    yield gpus
    cluster.nodes.pop(NAME).crash()
    plane.kubectl("delete", "node", NAME)


def _plugin() -> str:
    return (
        f"{_ENVIRONMENT}\nexec {sys.executable} -P -m fakes.gpuplugin --node={NAME} "
        f"--count={COUNT} --directory=/var/lib/kubelet/device-plugins"
    )


def _agent() -> str:
    """Return the script of the agent; its intervals are the default ones."""
    return (
        f"until [ -e {SHARED}/gpus.json ]; do sleep 0.2; done\n{_ENVIRONMENT}\n"
        f"exec {sys.executable} -P -m bindery.cli.main nodeagent beside --observe "
        f"--node-name={NAME} --devices={SHARED}/gpus.json --kubeconfig={SHARED}/beside.kubeconfig"
    )


@pytest.fixture(scope="module")
def gpus(cluster: RealCluster) -> Iterator[UsedGpus]:
    with added(cluster) as gpus:
        yield gpus


def gang(name: str, queue: str, priority: str = "train") -> Gang:
    """Return a gang of one pod with a GPU."""
    pod = {**running("trap exit TERM; sleep 600 & wait", devices=1, resource=GPU)}
    group = {"priorityClassName": priority}
    return Gang(name, 1, queue=queue, pod=pod, group=group)


async def index_of(corner: Corner, name: str) -> int:
    """Return the index of the GPU of a pod, once the agent has written it."""

    async def index() -> str | None:
        found = await corner.client.get(PODS, name, corner.namespace)
        return found.metadata.annotations.get(GPU_INDEXES_ANNOTATION)

    text = await wait_for(index, f"{name} has the index of its GPU")
    assert text is not None
    return int(text)


async def idle_since(corner: Corner, name: str) -> str | None:
    found = await corner.client.get(PODS, name, corner.namespace)
    return found.metadata.annotations.get(GPUS_IDLE_SINCE_ANNOTATION)


async def is_named_idle(corner: Corner, of: Gang) -> bool:
    conditions = (await corner.group(of)).status.conditions or []
    return any(each.type == GPUS_IDLE and each.status == "True" for each in conditions)


async def listed_idle(corner: Corner, kubeconfig_file: Path) -> str:
    """Return what the command of users prints about idle gangs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bindery.cli.main", f"--kubeconfig={kubeconfig_file}"),
        *("get", "gangs", "--idle", f"--namespace={corner.namespace}"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output.decode()


async def test_a_gang_that_stops_using_its_gpus_is_named_within_a_minute_and_is_reclaimed_first(
    corner: Corner, observer: Observer, gpus: UsedGpus, admin_kubeconfig: Path
) -> None:
    """The idle gang has the higher priority, so without its idleness the other one would go."""
    borrower = await corner.add_queue("borrower", {"idleAfterSeconds": 1})
    owner = await corner.add_queue("owner", {"resources": {"gpu": {"quota": 1}}})
    lazy, busy = gang("lazy", borrower, "build-preemptible"), gang("busy", borrower)
    await corner.submit(lazy, busy)
    for each in (lazy, busy):
        await wait_phase(corner, each, "Running")
    of_lazy, of_busy = await index_of(corner, "lazy-0"), await index_of(corner, "busy-0")
    assert {of_lazy, of_busy} == {0, 1}
    gpus.use(of_lazy, 80)
    gpus.use(of_busy, 80)

    gpus.use(of_lazy, 0)
    stopped_s = time.monotonic()

    await wait_for(lambda: is_named_idle(corner, lazy), "the gang is named", 60.0)
    assert time.monotonic() - stopped_s < 60
    assert await idle_since(corner, "lazy-0") is not None
    assert await idle_since(corner, "busy-0") is None
    assert not await is_named_idle(corner, busy)
    shown = await listed_idle(corner, admin_kubeconfig)
    assert "lazy" in shown
    assert "busy" not in shown

    claimant = gang("claimant", owner)
    await corner.submit(claimant)
    await wait_phase(corner, claimant, "Running")
    assert [pod.metadata.name for pod in await corner.pods(busy)] == ["busy-0"]
    assert not [pod for pod in await corner.pods(lazy) if pod.status.phase == "Running"]


async def test_a_gang_that_uses_its_gpus_again_is_idle_no_longer_and_a_killed_agent_goes_on(
    corner: Corner, observer: Observer, gpus: UsedGpus
) -> None:
    queue = await corner.add_queue("pausing", {"idleAfterSeconds": 1})
    paused = gang("paused", queue)
    await corner.submit(paused)
    await wait_phase(corner, paused, "Running")
    index = await index_of(corner, "paused-0")
    gpus.use(index, 0)

    async def has_time() -> str | None:
        return await idle_since(corner, "paused-0")

    async def has_none() -> bool:
        return await idle_since(corner, "paused-0") is None

    async def lose(annotation: str) -> None:
        patch = {"metadata": {"annotations": {annotation: None}}}
        await corner.client.patch(PODS, "paused-0", patch, namespace=corner.namespace)

    before = await wait_for(has_time, "its GPU is unused", 60.0)
    gpus.kill()
    await lose(GPU_INDEXES_ANNOTATION)
    await index_of(corner, "paused-0")  # it runs again, however long its start takes
    await asyncio.sleep(12)  # it has looked once
    assert await has_time() == before
    await lose(GPUS_IDLE_SINCE_ANNOTATION)
    assert await wait_for(has_time, "the time is restored", 30.0) == before
    gpus.use(index, 3)
    await wait_for(has_none, "its GPU is used again", 60.0)

    async def is_not_named() -> bool:
        return not await is_named_idle(corner, paused)

    await wait_for(is_not_named, "the gang is named no longer", 30.0)
