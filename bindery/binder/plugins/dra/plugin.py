"""dra: allocates and reserves claims, waits for devices, and rolls both back.

The scheduler's plugin of the same name has chosen the devices. `pre_bind` writes the finalizer,
`status.allocation` and `status.reservedFor` of each claim, each write with a check of the version.
`rollback` removes the reservation, and also the allocation if this request has made it and no other
pod uses it. Both may be interrupted anywhere and repeated. Source: `bindClaim` and `Unreserve` of
kube-scheduler's plugin DynamicResources, Kubernetes 1.36.
"""

import asyncio
from contextlib import suppress
from typing import ClassVar
from weakref import WeakValueDictionary

import msgspec
from pydantic import BaseModel, Field

from bindery.api.base import ApiModel
from bindery.api.times import timestamp
from bindery.binder.plugins.dra import extended, reservations
from bindery.binder.plugins.dra.conditions import wait_ready
from bindery.binder.plugins.dra.offers import Offers
from bindery.binder.plugins.dra.shares import Shares
from bindery.binder.plugins.interface import BindContext, PluginError
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.bindrequests import PodBinding
from bindery.kube.objects.claims import (
    RESOURCE_CLAIMS,
    ClaimHandover,
    ExtendedHandover,
    Handover,
    ResourceClaim,
)


class DynamicResourcesArguments(ApiModel):
    """The plugin's arguments: time limits for drivers."""

    binding_timeout_seconds: float = Field(default=600.0, gt=0)
    """Seconds from the allocation until all binding conditions must be true; default as in
    kube-scheduler.
    """


class _FinalizerGoneError(Exception):
    """The finalizer was removed before the allocation was written; the writes start again."""


class DynamicResources:
    """The plugin, with a lock for each claim that is being written."""

    name: ClassVar[str] = "dra"
    arguments: ClassVar[type[BaseModel]] = DynamicResourcesArguments

    def __init__(self, arguments: DynamicResourcesArguments) -> None:
        self._timeout_s = arguments.binding_timeout_seconds
        self._offers = Offers()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Claim UID -> lock: many pods of a gang may share a claim."""
        self._shares = Shares()

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether the BindRequest has data of the scheduler's plugin for the pod."""
        return self.name in binding.plugin_data

    async def pre_bind(self, context: BindContext) -> None:
        """Allocate and reserve the claims of the pod, and wait until their devices are ready."""
        handover = _handover(context)
        claims = list(handover.claims)
        for planned in claims:
            self._shares.enter(planned, context.pod)
            await self._demand_offered(context, planned)
        if handover.extended is not None:
            own = await extended.created(context.client, context.pod, handover.extended)
            await self._demand_offered(context, own)
            claims.append(own)
        written = [await self._reserve(context, planned) for planned in claims]
        if handover.extended is not None:
            await extended.show(context.client, context.pod, handover.extended)
        for claim in written:
            context.waits_for = f"the devices of claim {claim.metadata.name} to be ready"
            await wait_ready(context.client, claim, self._timeout_s)

    async def confirm(self, context: BindContext) -> None:
        """Check that the claims are still allocated and reserved, and their devices offered."""
        handover = _handover(context)
        claims = list(handover.claims)
        if handover.extended is not None:
            own = await extended.found(context.client, context.pod, handover.extended)
            if own is None:
                raise _missing_extended(context)
            claims.append(own)
        for planned in claims:
            try:
                claim = await context.client.get(
                    RESOURCE_CLAIMS, planned.name, context.pod.namespace
                )
            except NotFoundError as error:
                raise _missing(planned) from error
            reservations.check(claim, planned, context.pod)
            reservations.check_reserved(claim, planned, context.pod)
            await self._demand_offered(context, planned)

    async def post_bind(self, context: BindContext) -> None:
        """Forget the pod: from now on, the API server shows that it uses its claims."""
        for planned in _handover(context).claims:
            self._shares.leave(planned, context.pod)

    async def rollback(self, context: BindContext) -> None:
        """Undo the writes of `pre_bind` for this pod and this request."""
        try:
            handover = _handover(context)
        except PluginError:  # then `pre_bind` wrote nothing either
            return
        if handover.extended is not None:
            await self._withdraw(context, handover.extended)
        for planned in reversed(handover.claims):
            async with self._turn(planned):
                self._shares.leave(planned, context.pod)
                if await self._shares.is_used(context.client, planned, context.pod):
                    continue
                with suppress(NotFoundError):
                    await self._release(context, planned)

    async def _withdraw(self, context: BindContext, planned: ExtendedHandover) -> None:
        """Delete the claim for the pod's extended resources if it is the planned one."""
        own = await extended.found(context.client, context.pod, planned)
        if own is None:
            return
        async with self._turn(own):
            with suppress(NotFoundError):
                await self._release(context, own)
            await extended.delete(context.client, context.pod, own)

    async def _demand_offered(self, context: BindContext, planned: ClaimHandover) -> None:
        """Check that the devices of a claim are offered, if this plan allocates the claim.

        Raises:
            PluginError: a device is no longer offered.
        """
        if planned.is_new:
            node_name = context.binding.selected_node
            await self._offers.demand(context.client, planned.name, planned.allocation, node_name)

    async def _reserve(self, context: BindContext, planned: ClaimHandover) -> ResourceClaim:
        async with self._turn(planned):
            while True:
                try:
                    await self._protect(context, planned)
                    return await self._write(context, planned)
                except _FinalizerGoneError:
                    continue
                except NotFoundError as error:
                    raise _missing(planned) from error

    async def _protect(self, context: BindContext, planned: ClaimHandover) -> None:
        """Write the finalizer."""

        def change(claim: ResourceClaim) -> reservations.Patch | None:
            reservations.check(claim, planned, context.pod)
            return reservations.with_finalizer(claim)

        await context.client.update(RESOURCE_CLAIMS, planned.name, context.pod.namespace, change)

    async def _write(self, context: BindContext, planned: ClaimHandover) -> ResourceClaim:
        """Write the allocation and the reservation."""
        node_name = context.binding.selected_node

        def change(claim: ResourceClaim) -> reservations.Patch | None:
            reservations.check(claim, planned, context.pod)
            if reservations.with_finalizer(claim) is not None:
                raise _FinalizerGoneError
            now = timestamp(context.client.environment.now_s())
            return reservations.reserved(claim, planned, context.pod, node_name, now)

        return await context.client.update(
            RESOURCE_CLAIMS, planned.name, context.pod.namespace, change, subresource="status"
        )

    async def _release(self, context: BindContext, planned: ClaimHandover) -> None:
        def status(claim: ResourceClaim) -> reservations.Patch | None:
            if claim.metadata.uid != planned.uid:
                return None
            return reservations.released(claim, planned, context.pod)

        def finalizer(claim: ResourceClaim) -> reservations.Patch | None:
            if claim.metadata.uid != planned.uid or not planned.is_new:
                return None
            return reservations.without_finalizer(claim)

        namespace = context.pod.namespace
        await context.client.update(
            RESOURCE_CLAIMS, planned.name, namespace, status, subresource="status"
        )
        await context.client.update(RESOURCE_CLAIMS, planned.name, namespace, finalizer)

    def _turn(self, planned: ClaimHandover) -> asyncio.Lock:
        lock = self._turns.get(planned.uid)
        if lock is None:
            lock = self._turns[planned.uid] = asyncio.Lock()
        return lock


def _missing_extended(context: BindContext) -> PluginError:
    text = "the resource claim for extended resources of pod"
    return reservations.changed(f"{text} {context.pod.name} does not exist")


def _missing(planned: ClaimHandover) -> PluginError:
    return reservations.changed(f"resource claim {planned.name} does not exist")


def _handover(context: BindContext) -> Handover:
    try:
        return msgspec.convert(context.data, Handover)
    except msgspec.ValidationError as error:
        raise PluginError(
            f"the scheduler's plan for its resource claims cannot be read: {error}", permanent=True
        ) from error
