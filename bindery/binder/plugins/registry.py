"""Builds the configured binder plugins once, at the start of the process.

Plugins are entry points of the group `bindery.binder_plugins`. The configuration names the plugins
and their order. An error ends the start; its text contains the key in the configuration.
"""

import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path

from bindery.api import plugins, yamlfile
from bindery.api.configuration import BinderConfiguration, BinderPluginConfiguration
from bindery.api.names import BINDER_PLUGINS
from bindery.api.plugins import PluginConfigurationError, installed
from bindery.binder.plugins.interface import (
    BinderPlugin,
    BindsInTurn,
    MutatesPods,
    PostBinds,
    PreBinds,
    RollsBack,
    ValidatesPods,
)

_STEPS = (PreBinds, BindsInTurn, PostBinds, RollsBack, ValidatesPods, MutatesPods)


def load(path: Path | None) -> tuple[BinderConfiguration, tuple[BinderPlugin, ...]]:
    """Return the configuration at `path`, or the default one, and its plugins.

    Raises:
        FileError: the configuration or a plugin cannot be used; contains the line.
    """
    if path is None:
        configuration = BinderConfiguration()
        return configuration, build(configuration.plugins)
    configuration = yamlfile.load(BinderConfiguration, path)
    try:
        return configuration, build(configuration.plugins)
    except PluginConfigurationError as error:
        document = yamlfile.read(path)[0]
        raise document.error(error.location, error.message) from error


def build(
    configured: Iterable[BinderPluginConfiguration], available: Iterable[EntryPoint] | None = None
) -> tuple[BinderPlugin, ...]:
    """Return the configured plugins in their order.

    Args:
        configured: the plugins that the configuration names.
        available: the entry points to choose from; default: those of the installed packages.

    Raises:
        PluginConfigurationError: a plugin is unknown, is named twice, cannot be loaded, does not
            accept its arguments, or has no step.
    """
    found = installed(BINDER_PLUGINS, tuple(sys.path)) if available is None else available
    built = tuple(plugins.build(configured, found))
    for index, plugin in enumerate(built):
        if not isinstance(plugin, _STEPS):
            message = f"plugin {plugin.name} implements none of the steps"
            raise PluginConfigurationError(("plugins", index, "name"), message)
    return built
