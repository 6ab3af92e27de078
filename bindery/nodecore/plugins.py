"""The plugin manager's state: the present sockets of plugins, and the registered plugins."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.operations import OperationKey, PendingOperations

RECONCILE_PERIOD_S: Final = 1.0
DIAL_TIMEOUT_S: Final = 10.0
INFO_TIMEOUT_S: Final = 1.0
NOTIFY_TIMEOUT_S: Final = 5.0


class PluginType(StrEnum):
    """The type that a plugin registers with."""

    CSI = "CSIPlugin"
    DEVICE = "DevicePlugin"
    DRA = "DRAPlugin"


class PluginError(NodeCoreError):
    """A plugin cannot be registered. The plugin gets the message."""


class PluginHandler(Protocol):
    """Serves the plugins of one type; for one name, its calls never overlap."""

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Check that a plugin can be registered; raises NodeCoreError."""

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Connect to a plugin and register it; raises NodeCoreError."""

    async def deregister(self, name: str, endpoint: str) -> None:
        """Unregister a plugin; an unknown one is no error."""


@dataclass(frozen=True)
class Socket:
    """A socket on which a plugin can be registered.

    Attributes:
        uuid: distinguishes the socket from an earlier one with the same path.
    """

    path: str
    uuid: str
    created_at_s: float = 0.0


@dataclass(frozen=True)
class Registered:
    """A plugin that is registered."""

    socket: Socket
    kind: str
    name: str
    endpoint: str


@dataclass(frozen=True)
class PluginStep:
    """A socket to register, or a plugin to unregister."""

    is_register: bool
    socket: Socket
    plugin: Registered | None = None

    @property
    def key(self) -> OperationKey:
        """The key of the step's operation: one at a time for each socket."""
        return OperationKey(self.socket.path)

    @property
    def name(self) -> str:
        """The name of the step's operation."""
        return "register_plugin" if self.is_register else "unregister_plugin"


class DesiredPlugins:
    """The sockets that are there."""

    def __init__(self, clock: Callable[[], float], new_uuid: Callable[[], str]) -> None:
        self._clock = clock
        self._new_uuid = new_uuid
        self._sockets: dict[str, Socket] = {}

    def add_or_update(self, path: str) -> None:
        """Record a socket; a known one counts as new. Raises PluginError for an empty path."""
        if not path:
            raise PluginError("socket path is empty")
        self._sockets[path] = Socket(path, self._new_uuid(), self._clock())

    def remove(self, path: str) -> None:
        """Record that the socket is gone."""
        self._sockets.pop(path, None)

    def sockets(self) -> list[Socket]:
        """Return all sockets."""
        return [socket for _, socket in sorted(self._sockets.items())]

    def exists(self, path: str) -> bool:
        """Return whether the socket is there."""
        return path in self._sockets


class ActualPlugins:
    """The plugins that are registered."""

    def __init__(self) -> None:
        self._plugins: dict[str, Registered] = {}

    def add(self, plugin: Registered) -> None:
        """Record a plugin. Call this before its handler, so that no plugin is lost.

        Raises:
            PluginError: the path is empty.
        """
        if not plugin.socket.path:
            raise PluginError("socket path is empty")
        self._plugins[plugin.socket.path] = plugin

    def remove(self, path: str) -> None:
        """Record that the plugin is no longer registered."""
        self._plugins.pop(path, None)

    def plugins(self) -> list[Registered]:
        """Return all plugins."""
        return [plugin for _, plugin in sorted(self._plugins.items())]

    def is_registered(self, socket: Socket) -> bool:
        """Return whether the plugin on exactly this socket is registered."""
        found = self._plugins.get(socket.path)
        return found is not None and found.socket.uuid == socket.uuid


def plan(
    desired: DesiredPlugins, actual: ActualPlugins, pending: PendingOperations
) -> list[PluginStep]:
    """Return the steps of one round: unregister gone or replaced plugins, then register.

    A socket whose plugin is unregistered in this round is registered in a later round.
    """
    sockets = {socket.path: socket for socket in desired.sockets()}
    gone = [
        plugin
        for plugin in actual.plugins()
        if plugin.socket.path not in sockets
        or sockets[plugin.socket.path].uuid != plugin.socket.uuid
    ]
    leaving = {plugin.socket.path for plugin in gone}
    steps = [PluginStep(False, plugin.socket, plugin) for plugin in gone]
    steps += [
        PluginStep(True, socket)
        for path, socket in sockets.items()
        if path not in leaving and not actual.is_registered(socket)
    ]
    return [step for step in steps if pending.may_start(step.key, step.name)]


def is_candidate(name: str, *, is_socket: bool) -> bool:
    """Return whether a file in the plugins' directory is a plugin's socket."""
    return is_socket and not name.startswith(".")


def endpoint_of(socket_path: str, endpoint: str) -> str:
    """Return the endpoint that a plugin names, or its socket if it names none."""
    return endpoint or socket_path


def check_type(kind: str, handlers: Mapping[str, object], socket_path: str) -> None:
    """Raise PluginError, with a text for the plugin, if no handler serves this type."""
    if kind not in handlers:
        raise PluginError(
            "RegisterPlugin error -- no handler registered for plugin type: "
            f"{kind} at socket {socket_path}"
        )
