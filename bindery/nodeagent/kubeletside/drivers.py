"""The DRA drivers of a node: connections, calls, health, and ResourceSlices of absent drivers.

Handler of the plugin manager for their type. Decisions are `nodecore.claims`'.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import grpc
import structlog

from bindery.nodeagent.sockets.definitions import dra_pb2 as api
from bindery.nodeagent.sockets.definitions import drahealth_pb2 as health_api
from bindery.nodeagent.sockets.services import CallError, Peer, reason
from bindery.nodecore.checkpoints.claims import ClaimDevice
from bindery.nodecore.claims import health
from bindery.nodecore.claims.calls import CALL_TIMEOUT_S, PREPARE, DriverCall, Prepared
from bindery.nodecore.claims.drivers import HEALTH_SERVICE, Drivers, choose_service
from bindery.nodecore.claims.health import DeviceHealth, Health, HealthState

_PACKAGE: Final = "k8s.io.kubelet.pkg.apis.dra."
_HEALTH: Final = health_api.DESCRIPTOR.services_by_name["DRAResourceHealth"]
_CONNECT_S: Final = 1.0
"""How long a registration waits, so that the newest instance is called from then on."""
_ROUND_S: Final = 1.0
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 300.0
_JITTER: Final = 0.2

WipeSlices = Callable[[str | None], Awaitable[None]]
"""Deletes the ResourceSlices of the node, of one driver or of all; raises an exception of its own
if that fails, and is called again."""

log = structlog.get_logger(__name__)


@dataclass
class _Connection:
    peer: Peer
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class DraDrivers:
    """The connected drivers. `drivers`: which are registered; `now_s`: seconds since the epoch."""

    def __init__(
        self,
        drivers: Drivers,
        wipe: WipeSlices,
        now_s: Callable[[], float],
        random: Random,
        health_changed: Callable[[str, Sequence[DeviceHealth]], None],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self._drivers, self._wipe, self._now_s = drivers, wipe, now_s
        self._random, self._health_changed, self._timeout_s = random, health_changed, timeout_s
        self._health = HealthState()
        self._connections: dict[tuple[str, str], _Connection] = {}

    @property
    def health(self) -> HealthState:
        """The last reports about devices."""
        return self._health

    async def run(self) -> None:
        """Delete the slices of drivers that are gone for long, at first of all; does not return."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wipe_until_done(None))
            while True:
                for driver in self._drivers.to_wipe():
                    group.create_task(self._wipe_until_done(driver))
                await asyncio.sleep(_ROUND_S)

    async def stop(self) -> None:
        """Close the connections to all drivers."""
        for driver, endpoint in [*self._connections]:
            await self.deregister(driver, endpoint)

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise ClaimError if none of the services of a driver, its `versions`, is known."""
        choose_service(name, endpoint, versions)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Record a driver and connect to it; raises ClaimError if its endpoint is there already."""
        instance = self._drivers.add(name, endpoint, versions)
        peer = Peer(Path(endpoint), f"{_PACKAGE}{instance.service}")
        connection = _Connection(peer)
        self._connections[name, endpoint] = connection
        with suppress(TimeoutError):  # it is called all the same, as in the kubelet
            await peer.connect(_CONNECT_S)
            self._drivers.set_connected(name, endpoint, is_connected=True)
        connection.tasks.append(asyncio.create_task(self._follow(name, endpoint, peer)))
        if HEALTH_SERVICE in versions:
            connection.tasks.append(asyncio.create_task(self._watch_health(name, Path(endpoint))))

    async def deregister(self, name: str, endpoint: str) -> None:
        """Record that an instance of a driver is gone."""
        self._drivers.remove(name, endpoint)
        connection = self._connections.pop((name, endpoint), None)
        if connection is None:
            return
        for task in connection.tasks:
            task.cancel()
        await asyncio.gather(*connection.tasks, return_exceptions=True)
        await connection.peer.close()
        if not any(driver == name for driver, _ in self._connections):
            self._health = self._health.without(name)

    async def call(self, call: DriverCall) -> Mapping[str, Prepared]:
        """Make a call; return UID -> answer.

        Raises:
            ClaimError: the driver is not registered, or the call fails as a whole.
        """
        instance = self._drivers.find(call.driver)
        peer = self._connections[call.driver, instance.endpoint].peer
        claims = [api.Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in call.claims]
        try:
            if call.method == PREPARE:
                prepared = await peer.call(
                    call.method,
                    api.NodePrepareResourcesRequest(claims=claims),
                    api.NodePrepareResourcesResponse,
                    self._timeout_s,
                )
                return {uid: _prepared(answer) for uid, answer in prepared.claims.items()}
            ended = await peer.call(
                call.method,
                api.NodeUnprepareResourcesRequest(claims=claims),
                api.NodeUnprepareResourcesResponse,
                self._timeout_s,
            )
        except CallError as error:
            raise call.failed(reason(error)) from error
        return {uid: Prepared(error=answer.error) for uid, answer in ended.claims.items()}

    async def _follow(self, name: str, endpoint: str, peer: Peer) -> None:
        async for is_connected in peer.connections():
            self._drivers.set_connected(name, endpoint, is_connected=is_connected)

    async def _watch_health(self, name: str, endpoint: Path) -> None:
        while True:
            try:
                async with Peer(endpoint, _HEALTH) as driver:
                    stream = driver.stream(
                        "NodeWatchResources",
                        health_api.NodeWatchResourcesRequest(),
                        health_api.NodeWatchResourcesResponse,
                    )
                    async for report in stream:
                        self._take(name, report)
            except CallError as error:
                if (
                    isinstance(error, grpc.aio.AioRpcError)
                    and error.code() == grpc.StatusCode.UNIMPLEMENTED
                ):
                    return
                log.warning("a driver does not report the health of its devices", driver=name,
                            error=reason(error))  # fmt: skip
            await asyncio.sleep(health.RECONNECT_AFTER_S)

    def _take(self, name: str, report: health_api.NodeWatchResourcesResponse) -> None:
        devices = [_health_of(one) for one in report.devices]
        self._health, changed = health.reported(self._health, name, devices, self._now_s())
        if changed:
            self._health_changed(name, changed)

    async def _wipe_until_done(self, driver: str | None) -> None:
        wait_s = _FIRST_RETRY_S
        while True:
            try:
                await self._wipe(driver)
            except Exception as error:
                # The API server can refuse or be away for as long as it likes.
                log.warning("ResourceSlices cannot be deleted", driver=driver, error=str(error))
            else:
                return
            await asyncio.sleep(wait_s * (1 + _JITTER * self._random.random()))
            wait_s = min(2 * wait_s, _LONGEST_RETRY_S)


def _prepared(answer: api.NodePrepareResourceResponse) -> Prepared:
    devices = tuple(
        ClaimDevice(
            pool=one.pool_name,
            device=one.device_name,
            share_id=one.share_id if one.HasField("share_id") else None,
            requests=tuple(one.request_names) or None,
            cdi_ids=tuple(one.cdi_device_ids) or None,
        )
        for one in answer.devices
    )
    return Prepared(devices, answer.error)


def _health_of(report: health_api.DeviceHealth) -> DeviceHealth:
    states = {health_api.HEALTHY: Health.HEALTHY, health_api.UNHEALTHY: Health.UNHEALTHY}
    return DeviceHealth(
        pool=report.device.pool_name,
        device=report.device.device_name,
        health=states.get(report.health, Health.UNKNOWN),
        message=health.truncated(report.message),
        timeout_s=float(report.health_check_timeout_seconds),
    )
