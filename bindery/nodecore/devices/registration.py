"""Device plugins that register: which are accepted, and who connects to them."""

from collections.abc import Callable, Sequence
from typing import Final

from bindery.nodecore.admission.predicates import is_extended
from bindery.nodecore.devices.manager import DeviceManager, Plugin
from bindery.nodecore.plugins import PluginError

VERSION: Final = "v1beta1"
_SUPPORTED: Final = (VERSION,)

Connect = Callable[[str, str], Plugin]
"""Resource and endpoint -> the connected plugin; raises PluginError."""


class DeviceHandler:
    """Registers device plugins with a device manager."""

    def __init__(self, manager: DeviceManager, connect: Connect) -> None:
        self._manager = manager
        self._connect = connect

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise PluginError if the plugin for the resource `name` cannot be registered."""
        del endpoint
        if not set(versions) & set(_SUPPORTED):
            raise PluginError(
                f"manager version, {VERSION}, is not among plugin supported versions "
                f"{list(versions)}"
            )
        if not is_extended(name):
            raise PluginError(
                f'invalid name of device plugin socket: the ResourceName "{name}" is invalid'
            )

    def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Connect to a plugin and take it for its resource; raises PluginError if it fails."""
        del versions
        self._manager.register(name, self._connect(name, endpoint))

    def deregister(self, name: str, endpoint: str) -> None:
        """Mark the devices of a plugin as unhealthy."""
        del endpoint
        self._manager.stop(name)


def check_request(version: str, resource: str) -> None:
    """Raise PluginError if a plugin that registers at the kubelet's socket must not."""
    if version not in _SUPPORTED:
        raise PluginError(
            f'requested API version "{version}" is not supported by kubelet. Supported version is '
            f"{list(_SUPPORTED)}"
        )
    if not is_extended(resource):
        raise PluginError(f'the ResourceName "{resource}" is invalid')
