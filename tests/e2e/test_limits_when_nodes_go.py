"""A queue's limit holds at every binding while nodes are deleted and added under load."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from bindery.api.names import CHARGED_QUEUE_ANNOTATION
from bindery.kube.objects.resources import PODS, QUEUES
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.reflector import Change, EventType, Reflector
from tests.e2e.support import Corner, Gang, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

LIMIT, NODE_CORES, NODES_COUNT, STEPS = 6, 4, 3, 40


def _requested_cores(pod: Pod) -> int:
    resources = pod.spec.containers[0].resources
    assert resources is not None, pod.metadata.name
    return int((resources.requests or {})["cpu"])


class Recount:
    """What bound pods hold, by their watch alone; those on deleted nodes too."""

    def __init__(self, corner: Corner, queue: str) -> None:
        self._corner, self._queue = corner, queue
        self._pods: dict[str, Pod] = {}
        self.bindings = 0
        self.problems: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["Recount"]:
        pods = Reflector(self._corner.client, PODS, self._see, namespace=self._corner.namespace)
        task = asyncio.create_task(pods.run())
        try:
            await pods.synced.wait()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def cores(self, node: str = "") -> int:
        """Return the cores that are held in the queue, on `node` or on all."""
        return sum(
            _requested_cores(pod)
            for pod in self._pods.values()
            if pod.spec.node_name
            and node in ("", pod.spec.node_name)
            and pod.status.phase not in ("Succeeded", "Failed")
            and pod.metadata.annotations.get(CHARGED_QUEUE_ANNOTATION) == self._queue
        )

    def _see(self, change: Change[Pod]) -> None:
        pod, uid = change.object, change.object.metadata.uid
        known = self._pods.pop(uid, None)
        if change.type is EventType.DELETED:
            return
        self._pods[uid] = pod
        node = pod.spec.node_name
        if node and (known is None or not known.spec.node_name):
            self.bindings += 1
            for held, most in ((self.cores(), LIMIT), (self.cores(node), NODE_CORES)):
                if held > most:
                    self.problems.append(f"{held} of {most} cores after {pod.metadata.name}")


async def test_a_queue_is_charged_for_all_its_bound_pods_while_nodes_are_deleted(
    corner: Corner,
) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    random = Random(seed)  # no secrets
    queue = await corner.add_queue("limited", {"resources": {"cpu": {"limit": str(LIMIT)}}})
    names = [f"n{index}" for index in range(NODES_COUNT)]
    up = set(await corner.add_nodes(*names, cpu=str(NODE_CORES)))
    gangs: dict[str, Gang] = {}

    async def step(number: int) -> None:
        if number % 5 == 4:  # a node goes or comes back, with pods on it or in between
            name = random.choice(names)
            full = f"{corner.namespace}-{name}"
            if full in up:
                await corner.remove_node(full)
                up.remove(full)
            else:
                up.update(await corner.add_nodes(name, cpu=str(NODE_CORES)))
        elif len(gangs) > 4 or (gangs and random.random() < 0.3):
            await corner.delete_gang(gangs.pop(random.choice(sorted(gangs))))
        else:
            size, cpu = random.randint(1, 3), str(random.randint(1, 2))
            gang = Gang(f"g{number}", size, random.randint(1, size), cpu, queue)
            gangs[gang.name] = gang
            await corner.submit(gang)

    async with Recount(corner, queue).watching() as recount:
        for number in range(STEPS):
            await step(number)
            await asyncio.sleep(random.uniform(0, 0.6))

        async def is_charged() -> bool:
            status = (await corner.client.get(QUEUES, queue)).status
            return status.allocated.get("cpu", "0") == str(recount.cores())

        await wait_for(is_charged, "the queue shows what its pods hold")

    assert recount.problems == []
    assert recount.bindings > STEPS / 4
