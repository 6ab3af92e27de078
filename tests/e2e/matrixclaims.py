"""The worlds of the kill matrix in which pods claim devices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bindery.api.configuration import PluginConfiguration
from bindery.kube.objects.claims import FINALIZER, ResourceClaim
from bindery.kube.objects.resources import PODS
from tests.e2e.dracorner import Driver, gpus, named, templated
from tests.e2e.matrixworld import OTHER, REFUSED, World
from tests.e2e.support import Corner, Gang

_DRA = PluginConfiguration(name="dra")


class OwnClaims(World):
    """Each pod has a claim of its own, made from a template."""

    plugin = _DRA

    def gang(self, corner: Corner) -> Gang:
        return Gang(f"{corner.namespace}-{self.name}", size=2, pod=templated("one"))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        driver = Driver(corner)
        await driver.make_class()
        await driver.make_template("one")
        for node in (REFUSED, OTHER):
            await driver.publish(f"{corner.namespace}-{node}", gpus(2))
        yield
        await driver.clean()

    async def left_over(self, corner: Corner) -> list[str]:
        return [f"claim {claim.metadata.name}" for claim in await Driver(corner).claims()]

    async def held(self, corner: Corner) -> list[str]:
        return [text for claim in await Driver(corner).claims() for text in _held(claim)]

    async def amiss(self, corner: Corner) -> list[str]:
        claims = await Driver(corner).claims()
        counts = [len(claim.status.reserved_for) for claim in claims]
        return [] if counts == [1, 1] else [f"claims reserved for {counts} pods"]


class SharedClaim(World):
    """The pods share one claim, which outlives them."""

    plugin = _DRA

    def gang(self, corner: Corner) -> Gang:
        return Gang(f"{corner.namespace}-{self.name}", size=2, pod=named("shared"))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        driver = Driver(corner)
        await driver.make_class()
        await driver.make_claim("shared")
        for node in (REFUSED, OTHER):
            await driver.publish(f"{corner.namespace}-{node}", gpus(1))
        yield
        await driver.clean()

    async def left_over(self, corner: Corner) -> list[str]:
        return _held(await Driver(corner).claim("shared"))

    async def held(self, corner: Corner) -> list[str]:
        return await self.left_over(corner)

    async def amiss(self, corner: Corner) -> list[str]:
        count = len((await Driver(corner).claim("shared")).status.reserved_for)
        return [] if count == 2 else [f"the claim is reserved for {count} pods"]


class ExtendedClaims(OwnClaims):
    """Each pod requests an extended resource, for which the plugin creates a claim."""

    def gang(self, corner: Corner) -> Gang:
        name = f"{corner.namespace}-{self.name}"
        return Gang(name, size=2, pod=Driver(corner).requesting(1))

    async def held(self, corner: Corner) -> list[str]:
        shown = [
            f"pod {pod.metadata.name} shows a claim"
            for pod in await corner.client.list(PODS, namespace=corner.namespace)
            if pod.status.extended_resource_claim_status is not None
        ]
        return [*shown, *await self.left_over(corner)]


def _held(claim: ResourceClaim) -> list[str]:
    name = claim.metadata.name
    left = [f"{name} reserved for {user.name}" for user in claim.status.reserved_for]
    if claim.status.allocation is not None:
        left.append(f"{name} allocated")
    if FINALIZER in claim.metadata.finalizers:
        left.append(f"{name} protected")
    return left
