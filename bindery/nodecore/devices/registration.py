"""Device plugins that register: which are accepted."""

from collections.abc import Sequence
from typing import Final

from bindery.nodecore.admission.predicates import is_extended
from bindery.nodecore.plugins import PluginError

VERSION: Final = "v1beta1"
_SUPPORTED: Final = (VERSION,)


def check_plugin(resource: str, versions: Sequence[str]) -> None:
    """Raise PluginError if a plugin that the watcher has found cannot be registered."""
    if not set(versions) & set(_SUPPORTED):
        raise PluginError(
            f"manager version, {VERSION}, is not among plugin supported versions {list(versions)}"
        )
    if not is_extended(resource):
        raise PluginError(
            f'invalid name of device plugin socket: the ResourceName "{resource}" is invalid'
        )


def check_request(version: str, resource: str) -> None:
    """Raise PluginError if a plugin that registers at the kubelet's socket must not."""
    if version not in _SUPPORTED:
        raise PluginError(
            f'requested API version "{version}" is not supported by kubelet. Supported version is '
            f"{list(_SUPPORTED)}"
        )
    if not is_extended(resource):
        raise PluginError(f'the ResourceName "{resource}" is invalid')
