"""A driver of devices, played by the tests: slices, a class, claims, and what drivers report."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.claims import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.resources import BIND_REQUESTS
from tests.e2e.support import Corner, wait_for


def gpus(count: int, **further: Any) -> list[dict[str, Any]]:
    return [{"name": f"gpu-{index}", **further} for index in range(count)]


def named(claim: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}


def templated(template: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}]}


@dataclass
class Driver:
    """A driver of the test's own, and the class of its devices."""

    corner: Corner

    @property
    def name(self) -> str:
        return f"{self.corner.namespace}.example.com"

    @property
    def class_name(self) -> str:
        return self.corner.namespace

    async def publish(self, node: str, devices: Sequence[Mapping[str, Any]]) -> None:
        await self._publish(node, devices, {"nodeName": node})

    async def publish_to_all(self, pool: str, devices: Sequence[Mapping[str, Any]]) -> None:
        """Offer devices that every node can use."""
        await self._publish(pool, devices, {"allNodes": True})

    async def _publish(
        self, pool: str, devices: Sequence[Mapping[str, Any]], reach: Mapping[str, Any]
    ) -> None:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{self.class_name}-{pool}"},
            "spec": {
                "driver": self.name,
                **reach,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                "devices": list(devices),
            },
        }
        await self.corner.client.create(RESOURCE_SLICES, body)

    async def withdraw(self, node: str) -> None:
        """Offer the devices of `node` no more."""
        await self.corner.client.delete(RESOURCE_SLICES, f"{self.class_name}-{node}")

    @property
    def resource(self) -> str:
        """The extended resource that the class serves."""
        return f"{self.name}/card"

    async def make_class(self) -> None:
        expression = f'device.driver == "{self.name}"'
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": self.class_name},
            "spec": {
                "selectors": [{"cel": {"expression": expression}}],
                "extendedResourceName": self.resource,
            },
        }
        await self.corner.client.create(DEVICE_CLASSES, body)

    def requesting(self, count: int) -> dict[str, Any]:
        """Return the part of a pod's spec that requests the extended resource."""
        container = {
            "name": "main",
            "image": "none.invalid/work",
            "resources": {"limits": {self.resource: str(count)}},
        }
        return {"containers": [container]}

    def request(self, **further: Any) -> dict[str, Any]:
        exactly = {"deviceClassName": self.class_name, **further}
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    async def make_claim(self, name: str, namespace: str = "", **further: Any) -> None:
        space = namespace or self.corner.namespace
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": space},
            "spec": self.request(**further),
        }
        await self.corner.client.create(RESOURCE_CLAIMS, body, space)

    async def make_template(self, name: str) -> None:
        space = self.corner.namespace
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": space},
            "spec": {"spec": self.request()},
        }
        await self.corner.client.create(RESOURCE_CLAIM_TEMPLATES, body, space)

    async def claims(self) -> list[ResourceClaim]:
        return await self.corner.client.list(RESOURCE_CLAIMS, namespace=self.corner.namespace)

    async def claim(self, name: str) -> ResourceClaim:
        return await self.corner.client.get(RESOURCE_CLAIMS, name, self.corner.namespace)

    async def report(self, claim: str, device: str, condition: str = "") -> None:
        """Write `condition` as true of `device` into the claim's status; "": no conditions."""
        found = await self.claim(claim)
        assert found.status.allocation is not None
        result = found.status.allocation.devices.results[0]
        entry: dict[str, Any] = {"driver": self.name, "pool": result.pool, "device": device}
        if condition:
            said = {"type": condition, "status": "True", "reason": "Test", "message": ""}
            entry["conditions"] = [{**said, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        await self.corner.client.patch(
            RESOURCE_CLAIMS,
            claim,
            {"status": {"devices": [entry]}},
            namespace=self.corner.namespace,
            subresource="status",
        )

    async def clean(self) -> None:
        for slice_ in await self.corner.client.list(RESOURCE_SLICES):
            if slice_.spec.driver == self.name:
                await self.corner.client.delete(RESOURCE_SLICES, slice_.metadata.name)
        with suppress(NotFoundError):
            await self.corner.client.delete(DEVICE_CLASSES, self.class_name)


async def request_by_hand(
    corner: Corner, name: str, binding: Mapping[str, Any], **spec: object
) -> None:
    """Create a request with one pod, as no scheduler would."""
    # In a pool of its own: no scheduler leads there whose term makes it stale.
    labels = {"bindery.dev/test": "by-hand", NODE_POOL_LABEL: corner.namespace}
    body = {
        "apiVersion": API_VERSION,
        "kind": "BindRequest",
        "metadata": {"name": name, "labels": labels},
        "spec": {"statements": [{"id": name, "pods": [binding]}], **spec},
    }
    await corner.client.create(BIND_REQUESTS, body, corner.namespace)


async def refusal(corner: Corner, name: str, binding: Mapping[str, Any]) -> str:
    """Create a request with one pod; return the message with which it fails."""
    await request_by_hand(corner, name, binding, backoffLimit=0)

    async def refused() -> str:
        try:
            request = await corner.client.get(BIND_REQUESTS, name, corner.namespace)
        except NotFoundError:
            return ""
        return request.status.message if request.status.phase == "Failed" else ""

    return await wait_for(refused, f"{name} fails")
