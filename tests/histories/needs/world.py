"""All who answer the needs of a history, beside the `World` that submits its gangs."""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from bindery.kube.client import Client
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.storage import CLAIMS
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change
from tests.histories.needs import bodies
from tests.histories.needs.cards import CardNodes
from tests.histories.needs.controller import Controller
from tests.histories.needs.devices import DeviceControllers
from tests.histories.needs.plans import DeviceSource, Needs, Trouble
from tests.histories.needs.stages import CreateWorkers, StageOwners
from tests.histories.needs.volumes import VolumeControllers
from tests.histories.plan import NODE_PREFIX, Plan


class NeedsWorld:
    """The controllers, drivers and plugins that the gangs of a plan need."""

    def __init__(
        self, plan: Plan, server: ModelApiServer, client: Client, create_workers: CreateWorkers
    ) -> None:
        self._plan, self._server, self._client = plan, server, client
        self._controllers = list(self._needed(create_workers))

    def _needed(self, create_workers: CreateWorkers) -> Iterator[Controller]:
        plan, ground = self._plan, self._plan.ground
        nodes = [f"{NODE_PREFIX}{number}" for number in range(plan.nodes)]

        def chance(name: str) -> Random:
            return Random(f"{name} {plan.seed}")

        common = self._server, self._client
        if ground.has_volumes:
            yield VolumeControllers(*common, chance("storage"), nodes, ground.local_volumes)
        if ground.devices:
            yield DeviceControllers(*common, chance("driver"), nodes, ground.devices)
        if ground.card_nodes:
            yield CardNodes(*common, chance("kubelets"), ground.card_nodes, plan.cores)
        stages = {
            gang.name: (gang.size, gang.needs.stage)
            for gang in plan.gangs
            if gang.needs is not None and gang.needs.stage is not None
        }
        if stages:
            yield StageOwners(*common, chance("owners"), stages, create_workers)

    def see(self, change: Change) -> None:
        """Take note of a write."""
        for controller in self._controllers:
            controller.see(change)

    async def prepare(self) -> None:
        """Create what is there before the product starts."""
        for controller in self._controllers:
            await controller.prepare()

    async def live(self) -> None:
        """Answer, and let troubles come, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                controller.wake()
                group.create_task(controller.run())
                for trouble in self._plan.troubles:
                    group.create_task(_suffer(controller, trouble))

    async def submit_claims(self, gang: str, needs: Needs, pods: list[str]) -> None:
        """Create the claims that the pods of a gang name."""
        if not self._controllers:
            return
        controller = self._controllers[0]
        if needs.volume is not None and not needs.volume.is_ephemeral:
            for name in {bodies.volume_claim_name(needs.volume, gang, pod): 0 for pod in pods}:
                spec: Mapping[str, Any] = {"spec": bodies.claim_spec(needs.volume.source)}
                await controller.create(CLAIMS, name, spec)
        if needs.device is not None and needs.device.source is DeviceSource.SHARED:
            spec = {"spec": bodies.device_claim_spec(needs.device.count)}
            await controller.create(RESOURCE_CLAIMS, bodies.device_claim_name(gang), spec)


async def _suffer(controller: Controller, trouble: Trouble) -> None:
    await asyncio.sleep(max(0.0, trouble.at_s - asyncio.get_running_loop().time()))
    await controller.suffer(trouble)
