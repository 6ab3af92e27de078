"""A driver of devices, and Kubernetes' controller for resource claims.

The controller makes claims from templates, takes back reservations of pods that are gone or have
ended, and frees the devices of a claim when it has taken back the last reservation.
"""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, ClassVar, Final

from bindery.kube.client import Client
from bindery.kube.objects.claims import (
    FINALIZER,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ConsumerReference,
    ResourceClaim,
)
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.needs import bodies
from tests.histories.needs.controller import NAMESPACE, Controller, is_alive, nth
from tests.histories.needs.plans import Trouble, TroubleKind

_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


class DeviceControllers(Controller):
    """The driver on the nodes of the agent, and the claim controller."""

    watches: ClassVar[frozenset[str]] = frozenset(
        ("pods", "nodes", "resourceclaims", "resourceslices")
    )

    def __init__(
        self,
        server: ModelApiServer,
        client: Client,
        chance: Random,
        nodes: list[str],
        devices: int,
    ) -> None:
        super().__init__(server, client, chance)
        self._nodes, self._devices = nodes, devices
        self._withdrawn: set[str] = set()
        """Nodes that offer no devices now."""

    async def prepare(self) -> None:
        """Create the class and the templates."""
        selector = {"cel": {"expression": f'device.driver == "{bodies.DRIVER}"'}}
        spec = {"selectors": [selector], "extendedResourceName": bodies.EXTENDED_RESOURCE}
        await self.create(DEVICE_CLASSES, bodies.DEVICE_CLASS, {"spec": spec})
        for count in (1, 2):
            template = {"spec": {"spec": bodies.device_claim_spec(count)}}
            await self.create(RESOURCE_CLAIM_TEMPLATES, bodies.template_name(count), template)

    async def look(self) -> None:
        """Publish what is missing, and take one step for every pod and claim."""
        await self._publish()
        pods = {pod.metadata.uid: pod for pod in self.pods()}
        for pod in pods.values():
            for entry in pod.spec.resource_claims or ():
                if entry.resource_claim_template_name is not None and is_alive(pod):
                    await self._make_claim(pod, entry)
        for claim in self.all_of(RESOURCE_CLAIMS):
            await self._claim(claim, pods)

    async def _publish(self) -> None:
        there = {each.metadata.name for each in self.all_of(RESOURCE_SLICES)}
        for node in self.all_of(NODES):
            name = node.metadata.name
            if name not in self._nodes or name in self._withdrawn or f"slice-{name}" in there:
                continue
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
            spec = {
                "driver": bodies.DRIVER, "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"card-{index}"} for index in range(self._devices)],
            }  # fmt: skip
            await self.create(
                RESOURCE_SLICES, f"slice-{name}", {"spec": spec}, ownerReferences=[owner]
            )

    async def _make_claim(self, pod: Pod, entry: PodResourceClaim) -> None:
        meta = pod.metadata
        if any(each.name == entry.name for each in pod.status.resource_claim_statuses or ()):
            return
        name = next(_made_for(self.all_of(RESOURCE_CLAIMS), pod, entry), "")
        if not name:
            name = f"{meta.name}-{entry.name}-{self.chance.getrandbits(20):05x}"
            owner = {
                "apiVersion": "v1", "kind": "Pod", "controller": True, "blockOwnerDeletion": True,
                "name": meta.name, "uid": meta.uid,
            }  # fmt: skip
            count = int((entry.resource_claim_template_name or "").rpartition("-")[2])
            await self.create(
                RESOURCE_CLAIMS,
                name,
                {"spec": bodies.device_claim_spec(count)},
                ownerReferences=[owner],
                annotations={_ENTRY: entry.name},
            )
        status = {"resourceClaimStatuses": [{"name": entry.name, "resourceClaimName": name}]}
        await self.patch(PODS, pod, {"status": status}, "status")

    async def _claim(self, claim: ResourceClaim, pods: dict[str, Pod]) -> None:
        meta, status = claim.metadata, claim.status
        valid = [each for each in status.reserved_for if _may_use(pods.get(each.uid))]
        if len(valid) < len(status.reserved_for) or (
            meta.deletion_timestamp is not None and not valid and status.allocation is not None
        ):
            await self._take_back(claim, valid)
        elif status.allocation is None and FINALIZER in meta.finalizers:
            if meta.deletion_timestamp is not None:
                await self.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": None}})
        elif meta.deletion_timestamp is None and not valid and _is_of_ended(claim, pods):
            await self.attempt(self.client.delete(RESOURCE_CLAIMS, meta.name, NAMESPACE))

    async def _take_back(self, claim: ResourceClaim, valid: list[ConsumerReference]) -> None:
        """Leave the valid reservations; without any, free the devices and the claim."""
        users = [{"resource": each.resource, "name": each.name, "uid": each.uid} for each in valid]
        left = {"reservedFor": users} if valid else {"reservedFor": None, "allocation": None}
        is_written = await self.patch(RESOURCE_CLAIMS, claim, {"status": left}, "status")
        if is_written and not valid:
            update = self.client.update(
                RESOURCE_CLAIMS, claim.metadata.name, NAMESPACE, without_finalizer
            )
            await self.attempt(update)

    # -- troubles --------------------------------------------------------------------------------

    async def suffer(self, trouble: Trouble) -> None:
        """Withdraw the devices of a node for a while, or delete a claim."""
        if trouble.kind is TroubleKind.WITHDRAW_DEVICES:
            node = self._nodes[trouble.target % len(self._nodes)]
            self._withdrawn.add(node)
            await self.attempt(self.client.delete(RESOURCE_SLICES, f"slice-{node}"))
            await asyncio.sleep(trouble.seconds)
            self._withdrawn.discard(node)
            self.wake()
        elif trouble.kind is TroubleKind.DELETE_CLAIM:
            claims = self.all_of(RESOURCE_CLAIMS)
            if claims:
                name = nth(claims, trouble.target).metadata.name
                await self.attempt(self.client.delete(RESOURCE_CLAIMS, name, NAMESPACE))


def without_finalizer(claim: ResourceClaim) -> Mapping[str, Any] | None:
    """Return the patch that takes the protection from a claim that is not allocated."""
    if claim.status.allocation is not None or FINALIZER not in claim.metadata.finalizers:
        return None
    return {"metadata": {"finalizers": None}}


def _made_for(claims: list[ResourceClaim], pod: Pod, entry: PodResourceClaim) -> Iterator[str]:
    for claim in claims:
        meta = claim.metadata
        is_owned = any(owner.uid == pod.metadata.uid for owner in meta.owner_references)
        if is_owned and meta.annotations.get(_ENTRY) == entry.name:
            yield meta.name


def _may_use(pod: Pod | None) -> bool:
    """Whether a pod that a claim is reserved for is there, and has not ended."""
    if pod is None or not is_alive(pod):
        return False
    return pod.metadata.deletion_timestamp is None or bool(pod.spec.node_name)


def _is_of_ended(claim: ResourceClaim, pods: dict[str, Pod]) -> bool:
    """Whether the claim was made for a pod that has ended."""
    owners = [pods.get(owner.uid) for owner in claim.metadata.owner_references]
    return any(pod is not None and not is_alive(pod) for pod in owners)
