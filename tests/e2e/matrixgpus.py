"""The world of the kill matrix in which pods share GPUs: reservation pods and ConfigMaps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bindery.api.gpushare import RESERVATION_NAMESPACE
from bindery.api.names import GPU_RESOURCE
from bindery.binder.plugins.gpusharing import admission, handover
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import CONFIG_MAPS, NODES
from bindery.kube.objects.watched import ConfigMap
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change
from fakes.reservations import GpuDevicePlugins
from tests.e2e.gpunodes import HALF, sharing
from tests.e2e.matrixworld import OTHER, REFUSED, World
from tests.e2e.support import Corner, Gang

_GIVEN_BY_KUBERNETES = "kube-root-ca.crt"


class SharedGpus(World):
    """Each node has one GPU, of which each pod gets a half."""

    plugin = sharing()

    def gang(self, corner: Corner) -> Gang:  # noqa: ARG002  # equal everywhere
        # The rest of the node is for the reservation pod.
        return Gang(self.name, size=2, cpu="0.5", annotations=HALF, admit=admission.prepared)

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        room = {GPU_RESOURCE: "1"}
        for name in (REFUSED, OTHER):
            await corner.client.patch(
                NODES,
                f"{corner.namespace}-{name}",
                {"status": {"capacity": room, "allocatable": room}},
                subresource="status",
            )
        plugins = GpuDevicePlugins(corner.client, f"{corner.namespace}-")
        async with plugins.play(), _kubelet(corner):
            yield

    async def held(self, corner: Corner) -> list[str]:
        """Nothing of the group may be on the pods, as whoever looks for its users goes by that."""
        marked = [pod for pod in await self._pods(corner) if pod.groups]
        left = [f"{pod.metadata.name} in the group {pod.groups}" for pod in marked]
        return left + await self.left_over(corner)

    async def amiss(self, corner: Corner) -> list[str]:
        reservations = await _reservations(corner)
        nodes = [pod.spec.node_name for pod in reservations]
        if nodes != [f"{corner.namespace}-{OTHER}"]:
            return [f"reservations on {nodes}"]
        wrong = []
        maps = {found.metadata.name: found.data or {} for found in await _config_maps(corner)}
        for pod in await self._pods(corner):
            if pod.groups != reservations[0].groups:
                wrong.append(f"{pod.metadata.name} in {pod.groups}")
            told = maps.get(handover.names_of(pod)[0], {}).get(handover.VISIBLE_DEVICES)
            if told != reservations[0].index:
                wrong.append(f"{pod.metadata.name} was told {told}")
        return wrong if len(maps) == 4 else [*wrong, f"ConfigMaps {sorted(maps)}"]

    async def _pods(self, corner: Corner) -> list[Sharer]:
        every = await corner.client.list(SHARERS, namespace=corner.namespace)
        return [pod for pod in every if pod.metadata.name.startswith(f"{self.name}-")]

    async def left_over(self, corner: Corner) -> list[str]:
        left = [f"reservation on {pod.spec.node_name}" for pod in await _reservations(corner)]
        return left + [f"ConfigMap {found.metadata.name}" for found in await _config_maps(corner)]


async def _reservations(corner: Corner) -> list[Sharer]:
    every = await corner.client.list(SHARERS, namespace=RESERVATION_NAMESPACE)
    return [pod for pod in every if pod.spec.node_name.startswith(f"{corner.namespace}-")]


async def _config_maps(corner: Corner) -> list[ConfigMap]:
    found = await corner.client.list(CONFIG_MAPS, namespace=corner.namespace)
    return [each for each in found if each.metadata.name != _GIVEN_BY_KUBERNETES]


@asynccontextmanager
async def _kubelet(corner: Corner) -> AsyncIterator[None]:
    """End deleted reservation pods of the corner's nodes, which no kubelet runs."""
    ending: asyncio.Queue[Sharer] = asyncio.Queue()

    def see(change: Change[Sharer]) -> None:
        pod = change.object
        if pod.metadata.deletion_timestamp and pod.spec.node_name.startswith(corner.namespace):
            ending.put_nowait(pod)

    async def end() -> None:
        while True:
            meta = (await ending.get()).metadata
            with suppress(NotFoundError):
                await corner.client.delete(
                    SHARERS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0
                )

    reflector = Reflector(corner.client, SHARERS, see, namespace=RESERVATION_NAMESPACE)
    tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(end())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
