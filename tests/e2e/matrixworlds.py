"""The worlds of the kill matrix, one or more a plugin; those of volumes are here."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from bindery.api.configuration import PluginConfiguration
from bindery.binder.plugins.volumes.writes import CHOSEN_FOR
from bindery.kube.objects.storage import CLAIMS, VOLUMES, PersistentVolume, PersistentVolumeClaim
from fakes.provisioner import SELECTED_NODE, ProvisionerStandIn
from tests.e2e.matrixclaims import ExtendedClaims, OwnClaims, SharedClaim
from tests.e2e.matrixgpus import SharedGpus
from tests.e2e.matrixlocks import LockedNodes
from tests.e2e.matrixworld import REFUSED, World
from tests.e2e.storagecorner import Storage, claim_spec
from tests.e2e.support import Corner, Gang

_VOLUMES = PluginConfiguration(name="volumes")


class StaticVolumes(World):
    """Volumes that exist, of which the plugin picks by `claimRef`, and the controller binds."""

    plugin = _VOLUMES

    def gang(self, corner: Corner) -> Gang:
        return Gang(self.name, size=2, pod=_ephemeral(Storage(corner).full("static")))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        storage = Storage(corner)
        await storage.add_class("static", "WaitForFirstConsumer")
        yield
        await storage.clean()

    async def renew(self, corner: Corner) -> None:
        await _remove_volumes(corner)
        storage_class = Storage(corner).full("static")
        for _ in range(3):
            name = f"volume-{secrets.token_hex(4)}"
            await Storage(corner).add_volume(name, "1Gi", None, storageClassName=storage_class)

    async def held(self, corner: Corner) -> list[str]:
        """Volumes that the controller has bound stay bound: Kubernetes has no way back."""
        taken = [volume for volume in await _volumes(corner) if volume.spec.claim_ref is not None]
        return [f"volume {v.metadata.name}" for v in taken if v.status.phase != "Bound"]

    async def amiss(self, corner: Corner) -> list[str]:
        return await _unbound(corner)

    async def left_over(self, corner: Corner) -> list[str]:
        left = [f"claim {claim.metadata.name}" for claim in await _claims(corner)]
        taken = [volume for volume in await _volumes(corner) if volume.spec.claim_ref is not None]
        # The two that were bound say by whom; anything else was taken and not given back.
        left += [f"volume {v.metadata.name}" for v in taken if v.status.phase != "Released"]
        return left if len(taken) == 2 else [*left, f"{len(taken)} volumes taken"]


class ProvisionedVolumes(World):
    """Volumes that the driver provisions for the selected node, except for the first node."""

    plugin = _VOLUMES

    def gang(self, corner: Corner) -> Gang:
        return Gang(self.name, size=2, pod=_ephemeral(Storage(corner).full("made")))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        storage = Storage(corner)
        await storage.add_class("made", "WaitForFirstConsumer", storage.driver)
        full = {f"{corner.namespace}-{REFUSED}"}
        provisioner = ProvisionerStandIn(
            corner.client, corner.namespace, storage.driver, full_nodes=full
        )
        async with provisioner.serving():
            yield
        await storage.clean()

    async def renew(self, corner: Corner) -> None:
        await _remove_volumes(corner)

    async def held(self, corner: Corner) -> list[str]:
        return [
            f"claim {claim.metadata.name} has {key}"
            for claim in await _claims(corner)
            for key in (SELECTED_NODE, CHOSEN_FOR)
            if key in claim.metadata.annotations
        ]

    async def amiss(self, corner: Corner) -> list[str]:
        return await _unbound(corner)

    async def left_over(self, corner: Corner) -> list[str]:
        left = [f"claim {claim.metadata.name}" for claim in await _claims(corner)]
        made = await _volumes(corner)
        return left if len(made) == 2 else [*left, f"{len(made)} volumes made"]


async def _claims(corner: Corner) -> list[PersistentVolumeClaim]:
    return await corner.client.list(CLAIMS, namespace=corner.namespace)


async def _unbound(corner: Corner) -> list[str]:
    """Return which claims are not bound; there must be two."""
    claims = await _claims(corner)
    unbound = [f"claim {c.metadata.name}" for c in claims if c.status.phase != "Bound"]
    return unbound if len(claims) == 2 else [*unbound, f"{len(claims)} claims"]


async def _volumes(corner: Corner) -> list[PersistentVolume]:
    """Return the volumes of the gang that is looked at."""
    every = await corner.client.list(VOLUMES, label_selector=f"made-by={corner.namespace}")
    return [volume for volume in every if volume.metadata.deletion_timestamp is None]


async def _remove_volumes(corner: Corner) -> None:
    for volume in await _volumes(corner):
        await corner.client.delete(VOLUMES, volume.metadata.name)


def _ephemeral(storage_class: str) -> dict[str, Any]:
    """Return the part of a pod's spec that gives each pod a claim of its own."""
    template = {"volumeClaimTemplate": {"spec": claim_spec(storage_class)}}
    return {"volumes": [{"name": "data", "ephemeral": template}]}


WORLDS: Mapping[str, World] = {
    "static volumes": StaticVolumes(),
    "provisioned volumes": ProvisionedVolumes(),
    "own claims": OwnClaims(),
    "shared claim": SharedClaim(),
    "extended resources": ExtendedClaims(),
    "shared GPUs": SharedGpus(),
    "locked nodes": LockedNodes(),
}
