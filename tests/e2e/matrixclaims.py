"""The worlds of the kill matrix in which pods claim devices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dracorner import Driver, gpus, named, templated
from killmatrix import OTHER, REFUSED
from support import Corner, Gang

from bindery.api.configuration import PluginConfiguration
from bindery.kube.claims import FINALIZER

_DRA = PluginConfiguration(name="dra")


class OwnClaims:
    """Each pod has a claim of its own, made from a template."""

    plugin = _DRA

    def gang(self, corner: Corner) -> Gang:
        return Gang(f"{corner.namespace}-gang", size=2, pod=templated("one"))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        driver = Driver(corner)
        await driver.make_class()
        await driver.make_template("one")
        for node in await corner.add_nodes(REFUSED, OTHER):
            await driver.publish(node, gpus(2))
        yield
        await driver.clean()

    async def left_over(self, corner: Corner) -> list[str]:
        return [f"claim {claim.metadata.name}" for claim in await Driver(corner).claims()]


class SharedClaim:
    """The pods share one claim, which outlives them."""

    plugin = _DRA

    def gang(self, corner: Corner) -> Gang:
        return Gang(f"{corner.namespace}-gang", size=2, pod=named("shared"))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        driver = Driver(corner)
        await driver.make_class()
        await driver.make_claim("shared")
        for node in await corner.add_nodes(REFUSED, OTHER):
            await driver.publish(node, gpus(1))
        yield
        await driver.clean()

    async def left_over(self, corner: Corner) -> list[str]:
        claim = await Driver(corner).claim("shared")
        left = [f"reserved for {user.name}" for user in claim.status.reserved_for]
        if claim.status.allocation is not None:
            left.append("allocated")
        if FINALIZER in claim.metadata.finalizers:
            left.append("protected")
        return left
