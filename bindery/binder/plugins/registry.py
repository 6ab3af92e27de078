"""Builds the configured binder plugins, once, when the process starts.

Plugins are entry points of the group `bindery.binder_plugins`. The configuration names the ones to
use and their order. An error ends the start; it has the key in the configuration.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from bindery.api import plugins
from bindery.api.configuration import BinderPluginConfiguration
from bindery.api.names import BINDER_PLUGINS
from bindery.api.plugins import PluginConfigurationError
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
    found = entry_points(group=BINDER_PLUGINS) if available is None else available
    built = tuple(plugins.build(configured, found))
    for index, plugin in enumerate(built):
        if not isinstance(plugin, _STEPS):
            message = f"plugin {plugin.name} implements none of the steps"
            raise PluginConfigurationError(("plugins", index, "name"), message)
    return built
