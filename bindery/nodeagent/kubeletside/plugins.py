"""The plugin manager: registers the plugins whose sockets are there, and unregisters the others.

The steps and their backoff are `nodecore.plugins`' and `nodecore.operations`'. Steps on one socket
never overlap, and those of plugins of one type and name run one after the other.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from bindery.nodeagent.kubeletside.walking import SocketDirectory
from bindery.nodeagent.sockets.definitions import pluginregistration_pb2 as api
from bindery.nodeagent.sockets.services import CallError, Peer, reason
from bindery.nodecore import plugins as core
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.operations import PendingOperations
from bindery.nodecore.plugins import (
    ActualPlugins,
    DesiredPlugins,
    PluginError,
    PluginHandler,
    PluginStep,
    Registered,
    Socket,
)

DIRECTORY: Final = Path("plugins_registry")
"""Below the kubelet's directory."""
_DIRECTORY_MODE: Final = 0o755
_SERVICE: Final = api.DESCRIPTOR.services_by_name["Registration"]

log = structlog.get_logger(__name__)


class PluginManager:
    """Registers the plugins of `directory` with the handlers of their types."""

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[str, PluginHandler],
        clock: Callable[[], float],
        new_uuid: Callable[[], str],
        period_s: float = core.RECONCILE_PERIOD_S,
    ) -> None:
        self._directory, self._handlers, self._period_s = directory, handlers, period_s
        self._desired, self._actual = DesiredPlugins(clock, new_uuid), ActualPlugins()
        self._pending = PendingOperations(clock)
        self._sockets = SocketDirectory(directory, self._desired)
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def registered(self) -> list[Registered]:
        """Return the registered plugins."""
        return self._actual.plugins()

    async def run(self) -> None:
        """Register and unregister until cancelled; raises OSError without the directory."""
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        async with asyncio.TaskGroup() as group:
            while True:
                self._sockets.look()
                for step in core.plan(self._desired, self._actual, self._pending):
                    self._pending.start(step.key, step.name)
                    group.create_task(self._carry_out(step))
                await asyncio.sleep(self._period_s)

    async def _carry_out(self, step: PluginStep) -> None:
        error = None
        try:
            if step.plugin is None:
                await self._register(step.socket)
            else:
                await self._unregister(step.plugin)
        except (NodeCoreError, CallError, TimeoutError) as failure:
            error = str(failure)
            log.warning("a plugin cannot be registered", socket=step.socket.path, error=error)
        except Exception as failure:
            # One plugin must not end the registration of all others.
            error = repr(failure)
            log.exception("a plugin cannot be registered", socket=step.socket.path)
        finally:
            self._pending.finish(step.key, error)

    async def _register(self, socket: Socket) -> None:
        path = socket.path
        async with Peer(Path(path), _SERVICE) as plugin:
            info = await _info(plugin, path)
            try:
                core.check_type(info.type, self._handlers, path)
            except PluginError as error:
                await _refuse(plugin, path, str(error))
            handler = self._handlers[info.type]
            endpoint = core.endpoint_of(path, info.endpoint)
            versions = list(info.supported_versions)
            async with self._turns[info.type, info.name]:
                try:
                    handler.validate(info.name, endpoint, versions)
                except NodeCoreError as error:
                    await _refuse(plugin, path, "RegisterPlugin error -- plugin validation failed "
                                  f"with err: {error}")  # fmt: skip
                self._actual.add(Registered(socket, info.type, info.name, endpoint))
                try:
                    await handler.register(info.name, endpoint, versions)
                except BaseException as error:
                    self._actual.remove(path)
                    if not isinstance(error, NodeCoreError):
                        raise
                    await _refuse(plugin, path, "RegisterPlugin error -- plugin registration "
                                  f"failed with err: {error}")  # fmt: skip
                try:
                    await _notify(plugin, api.RegistrationStatus(plugin_registered=True))
                except CallError as error:
                    self._actual.remove(path)
                    await handler.deregister(info.name, endpoint)
                    raise PluginError(
                        "RegisterPlugin error -- failed to send registration status at socket "
                        f"{path}, err: {reason(error)}"
                    ) from error
        log.info("plugin registered", type=info.type, plugin=info.name, socket=path)

    async def _unregister(self, plugin: Registered) -> None:
        async with self._turns[plugin.kind, plugin.name]:
            self._actual.remove(plugin.socket.path)
            await self._handlers[plugin.kind].deregister(plugin.name, plugin.endpoint)
        log.info("plugin unregistered", type=plugin.kind, plugin=plugin.name)


async def _info(plugin: Peer, path: str) -> api.PluginInfo:
    try:
        await plugin.connect(core.DIAL_TIMEOUT_S)
    except TimeoutError as error:
        raise PluginError(
            f"RegisterPlugin error -- dial failed at socket {path}, err: failed to dial socket "
            f"{path}, err: context deadline exceeded"
        ) from error
    try:
        return await plugin.call("GetInfo", api.InfoRequest(), api.PluginInfo, core.INFO_TIMEOUT_S)
    except CallError as error:
        raise PluginError(
            "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket "
            f"{path}, err: {reason(error)}"
        ) from error


async def _refuse(plugin: Peer, path: str, text: str) -> None:
    """Report a refusal to a plugin; always raises PluginError."""
    try:
        await _notify(plugin, api.RegistrationStatus(plugin_registered=False, error=text))
    except CallError as error:
        raise PluginError(
            f"RegisterPlugin error -- failed to send error at socket {path}, err: {text}: "
            f"{reason(error)}"
        ) from error
    raise PluginError(text)


async def _notify(plugin: Peer, status: api.RegistrationStatus) -> None:
    await plugin.call(
        "NotifyRegistrationStatus", status, api.RegistrationStatusResponse, core.NOTIFY_TIMEOUT_S
    )
