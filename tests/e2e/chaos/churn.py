"""Work that comes and goes: gangs of every kind, queues that change, nodes that close and open.

Every gang has a life of its own: it is submitted, perhaps loses a pod, and is deleted. `Known` is
what `recount` and `rest` compare the cluster with.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from bindery.api.hami.vendortable import NVIDIA
from bindery.binder.plugins.gpusharing import admission
from bindery.kube.objects.resources import NODES, POD_GROUPS, PODS, QUEUES
from bindery.kube.objects.storage import CLAIMS
from tests.e2e.chaos.figures import Figures
from tests.e2e.chaos.ground import TEMPLATE, Ground, insist
from tests.e2e.dracorner import templated
from tests.e2e.storagecorner import claim_spec, using
from tests.e2e.support import Gang


@dataclass
class Submitted:
    """A gang that was submitted and is not deleted."""

    gang: Gang
    kind: str
    minimum: int
    can_fit: bool
    is_disturbed: bool = False
    """Whether one of its pods was deleted or evicted, so that it may be there in part."""


@dataclass
class Churn:
    """Submits and deletes at random."""

    ground: Ground
    random: Random
    figures: Figures
    gangs: dict[str, Submitted] = field(default_factory=dict)
    """Name -> gang, without gangs that are being deleted."""
    _count: int = 0

    async def live(self, until: Callable[[], bool]) -> None:
        """Submit gangs, each with a life of its own, until `until` holds; wait for their ends."""
        async with asyncio.TaskGroup() as lives:
            while not until():
                if len(self.gangs) < 60:
                    lives.create_task(self._life(self._next(), until))
                await asyncio.sleep(self.random.uniform(0.0, 0.6))
                if self.random.random() < 0.05:
                    await self._change_a_queue()
                if self.random.random() < 0.02:
                    lives.create_task(self._close_a_node(until))

    async def delete_all(self) -> None:
        """Delete every gang."""
        await asyncio.gather(*(self._delete(name) for name in list(self.gangs)))

    # -- one gang --------------------------------------------------------------------------------

    def _next(self) -> Submitted:
        self._count += 1
        kinds = {
            self._plain: 8, self._elastic: 3, self._share: 4, self._whole: 3, self._hami: 2,
            self._claims: 2, self._volume: 1, self._impossible: 1,
        }  # fmt: skip
        [make] = self.random.choices(list(kinds), list(kinds.values()))
        return make(f"g{self._count}")

    async def _life(self, submitted: Submitted, until: Callable[[], bool]) -> None:
        name = submitted.gang.name
        self.figures.gangs[submitted.kind] += 1
        self.gangs[name] = submitted
        await self._submit(submitted)
        end_s = asyncio.get_running_loop().time() + self.random.uniform(4, 40)
        loses = self.random.random() < 0.1
        while not until() and asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(0.5)
            if loses and self.random.random() < 0.1:
                loses = False
                submitted.is_disturbed = True
                pod = f"{name}-{self.random.randrange(submitted.gang.size)}"
                await insist(partial(self.ground.corner.delete_pod, pod))
        # What is alive when the churn ends is looked at while all is quiet.
        if not until():
            await self._delete(name)

    async def _submit(self, submitted: Submitted) -> None:
        gang, corner = submitted.gang, self.ground.corner
        if submitted.kind == "volume":
            body = {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": gang.name}, "spec": claim_spec(self.ground.storage_class),
            }  # fmt: skip
            create = partial(corner.client.create, CLAIMS, body, corner.namespace)
            await insist(create)
        steps: list[Callable[[], Awaitable[object]]] = [partial(corner.create_group, gang)]
        steps += [partial(corner.create_pod, gang, index) for index in range(gang.size)]
        if self.random.random() < 0.3:
            self.random.shuffle(steps)  # pods before their PodGroup, too
        for step in steps:
            await insist(step)

    async def _delete(self, name: str) -> None:
        submitted = self.gangs.pop(name, None)
        if submitted is None:
            return
        corner = self.ground.corner
        steps = [partial(corner.delete_pod, f"{name}-{i}") for i in range(submitted.gang.size)]
        steps.append(partial(corner.client.delete, POD_GROUPS, name, corner.namespace))
        if submitted.kind == "volume":
            steps.append(partial(corner.client.delete, CLAIMS, name, corner.namespace))
        self.random.shuffle(steps)
        await asyncio.gather(*(insist(step) for step in steps))

    # -- kinds of gangs --------------------------------------------------------------------------

    def _plain(self, name: str) -> Submitted:
        size = self.random.randint(1, 8)
        queue = self.random.choice(("limited", "a", "b"))
        return self._made(name, "plain", size, queue=queue, cpu=str(self.random.randint(1, 4)))

    def _elastic(self, name: str) -> Submitted:
        size = self.random.randint(2, 8)
        minimum = self.random.randint(1, size)
        queue = self.random.choice(("limited", "a", "b"))
        return self._made(name, "elastic", size, minimum, queue=queue)

    def _impossible(self, name: str) -> Submitted:
        made = self._made(name, "impossible", self.random.randint(1, 3), cpu="1000")
        made.can_fit = False
        return made

    def _share(self, name: str) -> Submitted:
        fraction = self.random.choice(("0.25", "0.4", "0.5", "0.7"))
        return self._made(
            name, "share", self.random.randint(1, 3),
            annotations={"gpu-fraction": fraction}, admit=admission.prepared,
        )  # fmt: skip

    def _whole(self, name: str) -> Submitted:
        limits = {NVIDIA.count_resource: str(self.random.randint(1, 3))}
        return self._made(name, "whole", self.random.randint(1, 3), pod=_limited(limits))

    def _hami(self, name: str) -> Submitted:
        limits = {
            NVIDIA.count_resource: "1",
            NVIDIA.memory_resource: str(self.random.choice((2000, 4000, 6000))),
        }
        return self._made(name, "hami", self.random.randint(1, 2), pod=_limited(limits))

    def _claims(self, name: str) -> Submitted:
        return self._made(name, "claims", self.random.randint(1, 3), pod=templated(TEMPLATE))

    def _volume(self, name: str) -> Submitted:
        return self._made(name, "volume", 1, pod=using(name))

    def _made(
        self, name: str, kind: str, size: int, minimum: int | None = None, **further: Any
    ) -> Submitted:
        needed = size if minimum is None else minimum
        queue = self.ground.queues[further.pop("queue", "a")]
        run_seconds = self.random.choice((None, self.random.uniform(1, 20)))
        if kind == "hami":
            run_seconds = None  # nobody runs pods there
        gang = Gang(
            name, size, needed, queue=queue, run_seconds=run_seconds,
            group={"stalenessGracePeriodSeconds": 5}, **further,
        )  # fmt: skip
        return Submitted(gang, kind, needed, can_fit=True)

    # -- queues and nodes ------------------------------------------------------------------------

    async def _change_a_queue(self) -> None:
        name = self.ground.queues[self.random.choice("ab")]
        quota = {"quota": str(self.random.choice((0, 10, 20, 40))), "overQuotaWeight": 1}
        patch = {"spec": {"resources": {"cpu": quota}, "priority": self.random.randint(90, 110)}}
        await insist(partial(self.ground.client.patch, QUEUES, name, patch))

    async def _close_a_node(self, until: Callable[[], bool]) -> None:
        name = f"{self.ground.corner.namespace}-c{self.random.randrange(3)}"
        await self._cordon(name, True)
        for _ in range(self.random.randint(2, 20)):
            if not until():
                await asyncio.sleep(0.5)
        await self._cordon(name, False)

    async def _cordon(self, name: str, closed: bool) -> None:
        patch = {"spec": {"unschedulable": closed}}
        await insist(partial(self.ground.client.patch, NODES, name, patch))


def _limited(limits: dict[str, str]) -> dict[str, Any]:
    resources = {"limits": limits, "requests": {"cpu": "500m"}}
    return {"containers": [{"name": "worker", "image": "worker", "resources": resources}]}


def pods_of(ground: Ground) -> partial[Any]:
    """Return the call that lists the pods of the attack."""
    return partial(ground.client.list, PODS, namespace=ground.corner.namespace)
