"""The API server's part of `claims.ClaimApi`: ResourceClaims are read, ResourceSlices deleted."""

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.http.requests import Selection
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.nodecore.claims.facts import ClaimError, ResourceClaim


class ServerClaims:
    """The claims and slices of the node `node`."""

    def __init__(self, client: Client, node: str) -> None:
        self._client, self._node = client, node

    async def claim(self, namespace: str, name: str) -> ResourceClaim:
        """Return a ResourceClaim; raises ClaimError if it cannot be had."""
        try:
            found = await self._client.get(RESOURCE_CLAIMS, name, namespace)
        except KubeError as error:
            raise ClaimError(str(error)) from error
        allocation = found.status.allocation
        owners = found.metadata.owner_references
        return ResourceClaim(
            uid=found.metadata.uid,
            name=name,
            namespace=namespace,
            owner_uid=next((one.uid for one in owners if one.controller), None),
            reserved_for=frozenset(
                one.uid for one in found.status.reserved_for if one.resource == "pods"
            ),
            drivers=None
            if allocation is None
            else tuple(sorted({one.driver for one in allocation.devices.results})),
        )

    async def wipe_slices(self, driver: str | None) -> None:
        """Delete the ResourceSlices of the node, of one driver or of all; raises KubeError."""
        selector = f"spec.nodeName={self._node}"
        if driver is not None:
            selector += f",spec.driver={driver}"
        # A node may not delete them one by one.
        await self._client.delete_all(RESOURCE_SLICES, Selection(field_selector=selector))
