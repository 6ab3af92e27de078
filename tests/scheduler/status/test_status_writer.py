"""Writes of the status of pods and PodGroups that another writer gets in the way of."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bindery.api.names import API_VERSION
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.errors import ConflictError
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from bindery.kube.lease import Leadership
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import NAMESPACES, POD_GROUPS
from bindery.scheduler.consequences import GangStatuses
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.status.writer import TRY_AGAIN_AFTER_S, StatusWriter
from tests.histories.apiserver.carrier import ModelCarrier
from tests.histories.apiserver.server import ModelApiServer
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    engine_with,
    modify,
    node,
    plan,
    pod,
)

NAMESPACE = pod("any").metadata.namespace


class Refusing(ModelCarrier):
    """The way to a model of the API server, which refuses some patches of a status."""

    def __init__(self, server: ModelApiServer) -> None:
        super().__init__(server, "scheduler")
        self.refusals = 0
        """How many patches are still to be refused, though nothing has changed."""
        self.tried = 0

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        if request.method != "PATCH":
            return await super().send(request, timeout_s)
        self.tried += 1
        if self.refusals:
            self.refusals -= 1
            raise ConflictError(409, "Conflict", "refused")
        return await super().send(request, timeout_s)


class World:
    """One gang that is bound, and the scheduler's writer of its status."""

    def __init__(self) -> None:
        self.clock = Clock()
        server = ModelApiServer(lambda: NOW, random.Random(1))
        self.carrier = Refusing(server)
        self.client = Client(self.carrier, 1.0, Environment(lambda: NOW, random.Random(2)))
        self.writer = StatusWriter(self.client, self.clock, lambda: False)
        bound = pod("g-0", group="g", on="n", phase="Running")
        self.engine = engine_with(node("n"), bound, clock=self.clock)
        self.statuses = GangStatuses(self.engine, self.writer, set, self.clock)

    async def create(self) -> None:
        api = {"apiVersion": "v1", "kind": "Namespace"}
        await self.client.create(NAMESPACES, {**api, "metadata": {"name": NAMESPACE}})
        body = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMember": 1, "queue": "default"},
        }
        await self.client.create(POD_GROUPS, body, NAMESPACE)
        await self.see()

    async def stored(self) -> PodGroup:
        return await self.client.get(POD_GROUPS, "g", NAMESPACE)

    async def see(self) -> None:
        """Let the event of the newest version come."""
        modify(self.engine.cluster, await self.stored())

    async def cycle(self) -> None:
        """Plan, offer statuses, and let the writer write them."""
        plan(self.engine)
        self.statuses.after_cycle(self.engine.report)
        await asyncio.sleep(0.1)

    @property
    def lost(self) -> list[JobKey]:
        return self.writer.take_lost_groups()

    async def is_shown(self) -> bool:
        conditions = (await self.stored()).status.conditions or ()
        return any(each.type == "Scheduled" for each in conditions)


@asynccontextmanager
async def bound_gang() -> AsyncIterator[World]:
    world = World()
    await world.create()
    writing = asyncio.create_task(world.writer.run(Leadership.without_election()))
    await asyncio.sleep(0)  # what was offered before a term is forgotten
    try:
        yield world
    finally:
        writing.cancel()


async def test_a_status_refused_though_nothing_changed_is_written_after_a_pause() -> None:
    async with bound_gang() as world:
        world.carrier.refusals = 2
        for _ in range(2):
            await world.cycle()
            await world.cycle()  # soon after: not written again yet
            assert not await world.is_shown()
            world.clock.now += TRY_AGAIN_AFTER_S
        await world.cycle()

        assert world.carrier.tried == 3
        assert await world.is_shown()


async def test_a_status_refused_for_a_change_is_written_when_the_change_is_seen() -> None:
    async with bound_gang() as world:
        body = {"metadata": {"labels": {"a": "b"}}}
        await world.client.patch(POD_GROUPS, "g", body, namespace=NAMESPACE)
        tried = world.carrier.tried

        await world.cycle()
        assert not await world.is_shown()
        await world.see()
        await world.cycle()

        assert world.carrier.tried == tried + 2
        assert await world.is_shown()
        world.clock.now += TRY_AGAIN_AFTER_S
        assert world.lost == []


async def test_a_status_that_others_have_set_meanwhile_is_not_written() -> None:
    """The change came before the refusal, and left nothing to write."""
    async with bound_gang() as world:
        world.carrier.refusals = 1
        await world.cycle()
        other = StatusWriter(world.client, world.clock, lambda: False)
        writing = asyncio.create_task(other.run(Leadership.without_election()))
        await asyncio.sleep(0)
        world.engine.cluster.changed_jobs.update(world.engine.cluster.groups)
        GangStatuses(world.engine, other, set, world.clock).after_cycle(world.engine.report)
        await asyncio.sleep(0.1)
        writing.cancel()
        await world.see()
        tried = world.carrier.tried

        world.clock.now += TRY_AGAIN_AFTER_S
        await world.cycle()

        assert await world.is_shown()
        assert world.carrier.tried == tried


async def test_a_refused_status_of_a_pod_waits_for_the_next_cycle_alone() -> None:
    """Pods that wait are offered in each cycle."""
    async with bound_gang() as world:
        modify(world.engine.cluster, pod("w", cpu=99))
        world.carrier.refusals = 2
        await world.cycle()
        world.clock.now += TRY_AGAIN_AFTER_S

        assert [key.name for key in world.lost] == ["g"]
