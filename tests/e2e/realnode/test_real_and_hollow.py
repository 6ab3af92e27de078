"""A hollow node does with a pod what a real one does: admitted or refused, phases, conditions."""

import asyncio
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest
from nodecases import CASES, ENDING, KNOWN
from realpods import DEVICE
from sizes import IS_LONG
from support import wait_for

from bindery.api.names import HOLLOW_RUN_SECONDS_ANNOTATION
from bindery.controlplane.components import Components
from bindery.controlplane.realnode.cluster import RealCluster
from bindery.kube.client import Client
from bindery.kube.objects import Pod
from bindery.kube.resources import PODS
from bindery.kube.watch import Change, Reflector

pytestmark = pytest.mark.e2e

REAL = "node-2"
_SETTLED_S = 1.5
"""How long nothing may change until a state is final."""


@dataclass
class History:
    """What one pod's status has said, one entry for each change."""

    states: list[tuple[Any, ...]] = field(default_factory=list)
    last: Pod = field(default_factory=Pod)

    def take(self, pod: Pod, node: str) -> None:
        self.last = pod
        status = pod.status
        conditions = tuple(
            (each.type, each.status, each.reason or "") for each in status.conditions or ()
        )
        state = (status.phase, status.reason, status.message.replace(node, "NODE"), conditions)
        if self.states[-1:] != [state]:
            self.states.append(state)

    @property
    def told(self) -> tuple[list[str], tuple[Any, ...]]:
        """The phases in their order and the final state.

        A real kubelet also writes conditions before the containers run. A hollow node does not: it
        would double its writes, and nothing waits for them.
        """
        phases = [state[0] for state in self.states]
        return [phase for phase, _ in groupby(phases)], self.states[-1]


@pytest.fixture(scope="module")
def hollow(module_components: Components, cluster: RealCluster) -> str:
    """The name of a hollow node with the resources of the real one."""
    path = "{.status.allocatable['cpu','memory','ephemeral-storage','pods']}"
    text = cluster.control_plane.kubectl("get", "node", REAL, f"--output=jsonpath={path}")
    cpu, memory, storage, pods = text.split()
    shape = [
        f"--cpu={cpu}",
        f"--memory={memory}",
        f"--pods={pods}",
        *("--gpus=0", "--racks=0", "--zones=0", "--remove-on-exit"),
        f"--set=ephemeralStorage={storage}",
        f"--set=numa.devices={{{DEVICE}: {{0: 2}}}}",
    ]
    module_components.start_hollow_nodes(1, shape).wait_ready()
    return "hollow-0"


async def settled(
    client: Client, namespace: str, node: str, body: dict[str, Any], *, ends: bool
) -> History:
    """Bind a pod to `node` and return its history when nothing changes any more."""
    name = body["metadata"]["name"]
    history = History()
    final = ("Succeeded", "Failed") if ends else ("Running", "Failed")
    loop = asyncio.get_running_loop()
    changed_s = loop.time()

    def take(change: Change[Pod]) -> None:
        nonlocal changed_s
        if change.object.metadata.name == name:
            changed_s = loop.time()
            history.take(change.object, node)

    watch = Reflector(client, PODS, take, namespace=namespace)
    task = asyncio.create_task(watch.run())
    try:
        await watch.synced.wait()
        body["spec"]["nodeName"] = node
        await client.create(PODS, body, namespace)

        async def is_settled() -> bool:
            return history.last.status.phase in final and loop.time() - changed_s > _SETTLED_S

        await wait_for(is_settled, f"{name} is settled on {node}: {history.states}")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return history


async def play(client: Client, namespace: str, node: str, case: str) -> list[History]:
    """Bring the pods of a case to a node, one after the other, and remove them again."""
    found, ends = [], case in ENDING
    annotations = {HOLLOW_RUN_SECONDS_ANNOTATION: "1"} if ends else {}
    for index, spec in enumerate(CASES[case]):
        metadata = {"name": f"{node}-{index}", "annotations": annotations}
        body = {"metadata": metadata, "spec": dict(spec)}
        found.append(await settled(client, namespace, node, body, ends=ends))
    for history in found:
        await client.delete(PODS, history.last.metadata.name, namespace, grace_period_s=0)
    return found


def cases() -> list[Any]:
    """Return a sample of the cases, or all of them in a long run."""
    chosen = list(CASES) if IS_LONG else list(CASES)[::3]
    differs = {
        name: [pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)]
        for name, reason in KNOWN.items()
    }
    return [pytest.param(name, marks=differs.get(name, ()), id=name) for name in chosen]


@pytest.mark.parametrize("case", cases())
async def test_a_hollow_node_does_what_a_real_one_does(
    client: Client, namespace: str, hollow: str, case: str
) -> None:
    real, played = await asyncio.gather(
        play(client, namespace, REAL, case), play(client, namespace, hollow, case)
    )

    assert [each.told for each in played] == [each.told for each in real]
