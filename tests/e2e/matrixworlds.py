"""The worlds of the kill matrix, one or more a plugin."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from killmatrix import OTHER, REFUSED, World
from matrixclaims import OwnClaims, SharedClaim
from provisioner import ProvisionerStandIn
from storagecorner import Storage, claim_spec
from support import Corner, Gang

from bindery.api.configuration import PluginConfiguration
from bindery.kube.storage import CLAIMS, VOLUMES

_VOLUMES = PluginConfiguration(name="volumes")


class StaticVolumes:
    """Volumes that exist, of which the plugin picks by `claimRef`, and the controller binds."""

    plugin = _VOLUMES

    def gang(self, corner: Corner) -> Gang:
        return Gang("gang", size=2, pod=_ephemeral(Storage(corner).full("static")))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        storage = Storage(corner)
        name = await storage.add_class("static", "WaitForFirstConsumer")
        for number in range(3):
            await storage.add_volume(f"volume-{number}", "1Gi", None, storageClassName=name)
        await corner.add_nodes(REFUSED, OTHER)
        yield
        await storage.clean()

    async def left_over(self, corner: Corner) -> list[str]:
        claims = await corner.client.list(CLAIMS, namespace=corner.namespace)
        mine = await corner.client.list(VOLUMES, label_selector=f"made-by={corner.namespace}")
        taken = [volume for volume in mine if volume.spec.claim_ref is not None]
        left = [f"claim {claim.metadata.name}" for claim in claims]
        # The two that were bound say by whom; anything else was taken and not given back.
        left += [f"volume {v.metadata.name}" for v in taken if v.status.phase != "Released"]
        return left if len(taken) == 2 else [*left, f"{len(taken)} volumes taken"]


class ProvisionedVolumes:
    """Volumes to be made where the claim says; the driver can make none on the first node."""

    plugin = _VOLUMES

    def gang(self, corner: Corner) -> Gang:
        return Gang("gang", size=2, pod=_ephemeral(Storage(corner).full("made")))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        storage = Storage(corner)
        await storage.add_class("made", "WaitForFirstConsumer", storage.driver)
        full, _ = await corner.add_nodes(REFUSED, OTHER)
        provisioner = ProvisionerStandIn(
            corner.client, corner.namespace, storage.driver, full_nodes={full}
        )
        async with provisioner.serving():
            yield
        await storage.clean()

    async def left_over(self, corner: Corner) -> list[str]:
        claims = await corner.client.list(CLAIMS, namespace=corner.namespace)
        made = await corner.client.list(VOLUMES, label_selector=f"made-by={corner.namespace}")
        left = [f"claim {claim.metadata.name}" for claim in claims]
        return left if len(made) == 2 else [*left, f"{len(made)} volumes made"]


def _ephemeral(storage_class: str) -> dict[str, Any]:
    """Return the part of a pod's spec that gives each pod a claim of its own."""
    template = {"volumeClaimTemplate": {"spec": claim_spec(storage_class)}}
    return {"volumes": [{"name": "data", "ephemeral": template}]}


WORLDS: Mapping[str, World] = {
    "static volumes": StaticVolumes(),
    "provisioned volumes": ProvisionedVolumes(),
    "own claims": OwnClaims(),
    "shared claim": SharedClaim(),
}
