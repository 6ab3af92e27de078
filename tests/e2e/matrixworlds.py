"""The worlds of the kill matrix, one or more a plugin."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from killmatrix import OTHER, REFUSED, World
from support import Corner, Gang

from bindery.api.configuration import PluginConfiguration
from bindery.kube.resources import Resource
from bindery.kube.storage import CLAIMS, STORAGE_CLASSES, VOLUMES


def ephemeral(storage_class: str) -> dict[str, Any]:
    """Return the part of a pod's spec that gives each pod a claim of its own."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]}


async def create(corner: Corner, resource: Resource[Any], body: Mapping[str, Any]) -> None:
    """Create a cluster-wide object."""
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    await corner.client.create(resource, typed)


class StaticVolumes:
    """Volumes that exist, of which the plugin picks by `claimRef`, and the controller binds."""

    plugin = PluginConfiguration(name="volumes")

    def gang(self, corner: Corner) -> Gang:
        return Gang("gang", size=2, pod=ephemeral(f"{corner.namespace}-static"))

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        await create(
            corner,
            STORAGE_CLASSES,
            {
                "metadata": {"name": f"{corner.namespace}-static"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        for number in range(3):
            await create(
                corner,
                VOLUMES,
                {
                    "metadata": {"name": f"{corner.namespace}-volume-{number}"},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": f"{corner.namespace}-static",
                        "hostPath": {"path": f"/volumes/{number}"},
                    },
                },
            )
        await corner.add_nodes(REFUSED, OTHER)
        yield
        await corner.client.delete(STORAGE_CLASSES, f"{corner.namespace}-static")
        for number in range(3):
            await corner.client.delete(VOLUMES, f"{corner.namespace}-volume-{number}")

    async def left_over(self, corner: Corner) -> list[str]:
        claims = await corner.client.list(CLAIMS, namespace=corner.namespace)
        volumes = [
            volume
            for volume in await corner.client.list(VOLUMES)
            if volume.metadata.name.startswith(corner.namespace)
        ]
        taken = [volume for volume in volumes if volume.spec.claim_ref is not None]
        left = [f"claim {claim.metadata.name}" for claim in claims]
        # The two that were bound say by whom; anything else was taken and not given back.
        left += [f"volume {v.metadata.name}" for v in taken if v.status.phase != "Released"]
        return left if len(taken) == 2 else [*left, f"{len(taken)} volumes taken"]


WORLDS: Mapping[str, World] = {"static volumes": StaticVolumes()}
