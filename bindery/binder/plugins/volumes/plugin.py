"""volumes: binds the claims of a pod to the volumes that the scheduler has chosen.

For an existing volume, the plugin writes the volume's claimRef; for a volume to be provisioned, it
writes the claim's annotation with the node. The cluster's volume controller and the driver's
provisioner do the rest (the protocol of kube-scheduler's `volumebinding` PreBind, Kubernetes 1.34).
Invariant: only objects with this pod's mark are ever rolled back, and never those of a bound claim.
"""

import asyncio
from contextlib import aclosing
from typing import ClassVar, Final

import msgspec
from pydantic import Field

from bindery.api.base import ApiModel
from bindery.binder.plugins.interface import BindContext, PluginError
from bindery.binder.plugins.volumes.watch import VolumeWatch
from bindery.binder.plugins.volumes.writes import CHOSEN_FOR, SELECTED_NODE, VolumeWriter, is_bound
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.bindrequests import PodBinding
from bindery.kube.objects.labels import selects_node
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.storage import (
    CLAIMS,
    STORAGE_CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)


class ChosenVolume(msgspec.Struct, frozen=True):
    """The scheduler's choice for one claim of a pod."""

    name: str
    uid: str
    volume: str | None = None
    """The volume for the claim; "" to provision one; None if the claim is already bound."""


class VolumesArguments(ApiModel):
    """The plugin's arguments in the configuration."""

    bind_timeout_seconds: float = Field(default=120.0, gt=0)
    """Seconds until all claims of a pod must be bound."""


_GONE: Final = "ClaimGone"
_GOING: Final = "ClaimBeingDeleted"
_CLASS_MISSING: Final = "StorageClassMissing"
_DESELECTED: Final = "ClaimDeselected"
_NOT_PROVISIONED: Final = "ProvisioningFailed"


class Volumes:
    """Writes volumes and claims, waits for them, checks them, and rolls back."""

    name: ClassVar[str] = "volumes"
    arguments: ClassVar[type[VolumesArguments]] = VolumesArguments

    def __init__(self, arguments: VolumesArguments) -> None:
        self._timeout_s = arguments.bind_timeout_seconds
        self._watch = VolumeWatch()

    async def run(self, client: Client) -> None:
        """Mirror claims and volumes."""
        await self._watch.run(client)

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether the BindRequest has data of the scheduler's plugin for the pod."""
        return self.name in binding.plugin_data

    async def pre_bind(self, context: BindContext) -> None:
        """Give a volume to every claim of the pod, and wait until all claims are bound.

        Raises:
            PluginError: a claim is deleted, cannot get the chosen volume, or is not bound in time.
        """
        chosen = _read(context)
        if not chosen:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._watch.ready.wait()
                for each in chosen:
                    await self._write(context, each)
                claims = [await self._bound(context, each) for each in chosen]
        except TimeoutError as error:
            names = ", ".join(each.name for each in chosen)
            message = f"after {self._timeout_s:g} s these claims are not all bound: {names}"
            raise PluginError(message, reason="VolumesNotBound", permanent=True) from error
        await self._verify(context, claims)

    async def confirm(self, context: BindContext) -> None:
        """Check that the claims exist, are bound and are not being deleted."""
        for each in _read(context):
            claim = await self._read_claim(context, each)
            if not is_bound(claim):
                message = f"claim {each.name} is no longer bound"
                raise PluginError(message, reason=_GONE, permanent=True)

    async def rollback(self, context: BindContext) -> None:
        """Undo the writes for this pod on claims that are not bound."""
        writer = VolumeWriter(context.client, context.pod)
        try:
            chosen = _read(context)
        except PluginError:
            return  # data that cannot be read led to no write either
        for each in chosen:
            if each.volume:
                await writer.release(each.volume, each.uid)
            elif each.volume is not None:
                node = context.binding.selected_node
                await writer.deselect(each.name, each.uid, node)

    # -- inside ----------------------------------------------------------------------------------

    async def _write(self, context: BindContext, chosen: ChosenVolume) -> None:
        writer = VolumeWriter(context.client, context.pod)
        if chosen.volume:
            claim = await self._read_claim(context, chosen)
            if not claim.spec.volume_name:  # an earlier attempt may have led to another volume
                await writer.give(chosen.volume, chosen.name, chosen.uid)
        elif chosen.volume is not None:
            await self._demand_class(context, await self._read_claim(context, chosen))
            await writer.select(chosen.name, chosen.uid, context.binding.selected_node)

    async def _bound(self, context: BindContext, chosen: ChosenVolume) -> PersistentVolumeClaim:
        """Wait until the claim is bound, and return it; woken by each change."""
        context.waits_for = f"claim {chosen.name} to be bound"
        states = self._watch.claim_states(context.pod.namespace, chosen.name)
        async with aclosing(states):
            async for seen in states:
                claim = seen or await self._read_claim(context, chosen)
                _demand_alive(claim, chosen)
                if claim.status.phase == "Lost":
                    message = f"claim {chosen.name} has lost its volume {claim.spec.volume_name}"
                    raise PluginError(message, reason=_GONE, permanent=True)
                if is_bound(claim):
                    return claim
                if chosen.volume == "":
                    await self._demand_selected(context, chosen, claim)
        raise AssertionError("states end only with the process")

    async def _demand_selected(
        self, context: BindContext, chosen: ChosenVolume, claim: PersistentVolumeClaim
    ) -> None:
        """Check that a volume is being provisioned for `claim` on the pod's node.

        Raises:
            PluginError: the provisioner has given up, or the pod that selected the node was rolled
                back.
        """
        node = context.binding.selected_node
        if claim.metadata.annotations.get(SELECTED_NODE) == node:
            return
        # The mirror may still show the claim as it was before the write.
        claim = await self._read_claim(context, chosen)
        if claim.spec.volume_name or claim.metadata.annotations.get(SELECTED_NODE) == node:
            return
        if CHOSEN_FOR in claim.metadata.annotations:
            message = f"no volume can be provisioned for claim {chosen.name} on node {node}"
            raise PluginError(message, reason=_NOT_PROVISIONED, permanent=True)
        message = (
            f"claim {chosen.name} is no longer being provisioned for node {node}: another pod "
            "that uses it requested this and was not bound"
        )
        raise PluginError(message, reason=_DESELECTED)

    async def _demand_class(self, context: BindContext, claim: PersistentVolumeClaim) -> None:
        """Check that the storage class for the volume of `claim` exists.

        Raises:
            PluginError: the class is missing.
        """
        name = claim.spec.storage_class_name or ""
        if not name or claim.spec.volume_name:
            return
        try:
            await context.client.get(STORAGE_CLASSES, name)
        except NotFoundError as error:
            message = f"the storage class {name} of claim {claim.metadata.name} does not exist"
            raise PluginError(message, reason=_CLASS_MISSING, permanent=True) from error

    async def _read_claim(
        self, context: BindContext, chosen: ChosenVolume
    ) -> PersistentVolumeClaim:
        """Return the claim from the API server.

        Raises:
            PluginError: the claim is deleted or is being deleted.
        """
        try:
            claim = await context.client.get(CLAIMS, chosen.name, context.pod.namespace)
        except NotFoundError as error:
            raise _gone(chosen) from error
        _demand_alive(claim, chosen)
        return claim

    async def _verify(self, context: BindContext, claims: list[PersistentVolumeClaim]) -> None:
        """Check that the node can use the claims' volumes, which others may have chosen."""
        node_name = context.binding.selected_node
        held = [
            (volume, volume.spec.node_affinity.required)
            for volume in [await self._volume(context, claim) for claim in claims]
            if volume.spec.node_affinity is not None
        ]
        if not held:
            return
        node = await context.client.get(NODES, node_name)
        for volume, required in held:
            terms = required.node_selector_terms if required is not None else None
            if terms is not None and not selects_node(terms, node.metadata.labels, node_name):
                message = f"volume {volume.metadata.name} cannot be used on node {node_name}"
                raise PluginError(message, reason="VolumeNodeConflict", permanent=True)

    async def _volume(self, context: BindContext, claim: PersistentVolumeClaim) -> PersistentVolume:
        name = claim.spec.volume_name
        seen = self._watch.volume(name)
        if seen is not None:
            return seen
        try:
            return await context.client.get(VOLUMES, name)
        except NotFoundError as error:
            message = f"claim {claim.metadata.name} is bound to volume {name}, which is gone"
            raise PluginError(message, reason=_GONE, permanent=True) from error


def _read(context: BindContext) -> list[ChosenVolume]:
    """Return the scheduler's choices.

    Raises:
        PluginError: the data cannot be read.
    """
    try:
        return msgspec.convert(context.data.get("claims", []), list[ChosenVolume])
    except msgspec.ValidationError as error:
        message = f"pluginData.volumes of pod {context.pod.name} cannot be read: {error}"
        raise PluginError(message, reason="InvalidPluginData", permanent=True) from error


def _demand_alive(claim: PersistentVolumeClaim, chosen: ChosenVolume) -> None:
    """Check that `claim` is the chosen one and is not being deleted.

    Raises:
        PluginError: it is another claim, or is being deleted.
    """
    if claim.metadata.uid != chosen.uid:
        raise _gone(chosen)
    if claim.metadata.deletion_timestamp is not None:
        message = f"claim {chosen.name} is being deleted"
        raise PluginError(message, reason=_GOING, permanent=True)


def _gone(chosen: ChosenVolume) -> PluginError:
    return PluginError(f"claim {chosen.name} no longer exists", reason=_GONE, permanent=True)
