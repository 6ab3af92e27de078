"""Waits until drivers report devices as ready (binding conditions, KEP-5007).

Called by `plugin` after claims are allocated. Drivers report in `status.devices` of the claim. The
claim is watched while a pod waits for it.
"""

import asyncio

from bindery.api.times import seconds
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.objects.claims import RESOURCE_CLAIMS, DeviceResult, DeviceStatus, ResourceClaim
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change, EventType

NOT_READY = "DevicesNotReady"


def readiness(claim: ResourceClaim) -> str | None:
    """Return the conditions that devices of `claim` still lack, as text; None if all are ready.

    Raises:
        PluginError: a driver reports that a device will not be ready.
    """
    if claim.status.allocation is None:
        raise PluginError(
            f"resource claim {claim.metadata.name} was deallocated in the meantime",
            reason=NOT_READY,
            permanent=True,
        )
    for result in claim.status.allocation.devices.results:
        true = _true_conditions(claim.status.devices, result)
        failed = [each for each in result.binding_failure_conditions if each in true]
        if failed:
            raise PluginError(
                f"device {result.driver}/{result.pool}/{result.device} of resource claim "
                f"{claim.metadata.name} cannot be used: {failed[0]}",
                reason=NOT_READY,
                permanent=True,
            )
        missing = [each for each in result.binding_conditions if each not in true]
        if missing:
            return f"{result.driver}/{result.pool}/{result.device} is not yet {missing[0]}"
    return None


async def wait_ready(client: Client, claim: ResourceClaim, timeout_s: float) -> None:
    """Wait until all devices of `claim` are ready.

    `timeout_s` counts from the allocation, so a new attempt does not restart it.

    Raises:
        PluginError: a device will never be ready, or was not ready in time.
    """
    missing = readiness(claim)
    if missing is None:
        return
    name, failed = claim.metadata.name, asyncio.get_running_loop().create_future()
    latest = [missing]

    def look(change: Change[ResourceClaim]) -> None:
        if failed.done():
            return
        try:
            still = _still_missing(change)
        except PluginError as error:
            failed.set_exception(error)
            return
        if still is None:
            failed.set_result(None)
        else:
            latest[0] = still

    reflector = Reflector(
        client,
        RESOURCE_CLAIMS,
        look,
        namespace=claim.metadata.namespace,
        field_selector=f"metadata.name={name}",
    )
    watching = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(_seconds_left(claim, timeout_s, client.environment.now_s())):
            await failed
    except TimeoutError:
        message = f"resource claim {name}: {latest[0]} after {timeout_s:g} s"
        raise PluginError(message, reason=NOT_READY, permanent=True) from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _still_missing(change: Change[ResourceClaim]) -> str | None:
    if change.type is EventType.DELETED:
        message = f"resource claim {change.object.metadata.name} is gone"
        raise PluginError(message, reason=NOT_READY, permanent=True)
    return readiness(change.object)


def _true_conditions(devices: list[DeviceStatus], result: DeviceResult) -> frozenset[str]:
    return frozenset(
        condition.type
        for device in devices
        if (device.driver, device.pool, device.device, device.share_id)
        == (result.driver, result.pool, result.device, result.share_id)
        for condition in device.conditions
        if condition.status == "True"
    )


def _seconds_left(claim: ResourceClaim, timeout_s: float, now_s: float) -> float:
    allocation = claim.status.allocation
    since_s = seconds(allocation.allocation_timestamp if allocation is not None else None)
    if since_s is None:
        return timeout_s
    return max(0.0, timeout_s - (now_s - since_s))
