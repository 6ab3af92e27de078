"""Finds and builds the configured binder plugins.

Called once at a start, before anything is done. Plugins are entry points of the group
`bindery.binder_plugins`; the configuration names those to use and their order. Whatever is wrong
ends the start with the place in the configuration.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from pydantic import BaseModel, ValidationError

from bindery.api.configuration import PluginConfiguration
from bindery.api.names import BINDER_PLUGINS
from bindery.api.yamlfile import Location, format_location
from bindery.binder.plugins.interface import (
    BinderPlugin,
    BindsInTurn,
    MutatesPods,
    PluginFactory,
    PostBinds,
    PreBinds,
    RollsBack,
    ValidatesPods,
)


class PluginConfigurationError(Exception):
    """The configured plugins cannot be used. The caller shows the place and ends with code 2."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(f"{format_location(location)}: {message}")
        self.location = location
        """Where in the configuration."""
        self.message = message


def build(
    configured: Iterable[PluginConfiguration], available: Iterable[EntryPoint] | None = None
) -> tuple[BinderPlugin, ...]:
    """Return the plugins in their order.

    Args:
        configured: what the configuration names.
        available: the entry points to choose from; default: those of the installed packages.

    Raises:
        PluginConfigurationError: a plugin is unknown, is named twice, cannot be loaded, or does
            not take its arguments.
    """
    found = entry_points(group=BINDER_PLUGINS) if available is None else available
    known = {point.name: point for point in found}
    plugins: list[BinderPlugin] = []
    for index, configuration in enumerate(configured):
        location: Location = ("plugins", index)
        if any(plugin.name == configuration.name for plugin in plugins):
            raise PluginConfigurationError(
                (*location, "name"), f"plugin {configuration.name!r} is named twice"
            )
        point = known.get(configuration.name)
        if point is None:
            names = ", ".join(sorted(known)) or "none"
            raise PluginConfigurationError(
                (*location, "name"),
                f"there is no binder plugin {configuration.name!r}; installed: {names}",
            )
        plugins.append(_build(_load(point, location), configuration, location))
    return tuple(plugins)


def _load(point: EntryPoint, location: Location) -> PluginFactory:
    try:
        factory = point.load()
    except Exception as error:  # whatever a third party's module raises when it is imported
        message = f"{point.value} cannot be loaded: {type(error).__name__}: {error}"
        raise PluginConfigurationError((*location, "name"), message) from error
    model = getattr(factory, "arguments", None)
    if not (callable(factory) and isinstance(model, type) and issubclass(model, BaseModel)):
        message = f"{point.value} is not a plugin: it is not callable or has no `arguments` model"
        raise PluginConfigurationError((*location, "name"), message)
    if getattr(factory, "name", None) != point.name:
        message = f"{point.value} has the name {getattr(factory, 'name', None)!r}"
        raise PluginConfigurationError((*location, "name"), message)
    return factory  # type: ignore[no-any-return]  # the attributes were checked above


def _build(
    factory: PluginFactory, configuration: PluginConfiguration, location: Location
) -> BinderPlugin:
    try:
        plugin = factory(factory.arguments.model_validate(configuration.arguments))
    except ValidationError as error:
        first = error.errors()[0]
        place = (*location, "arguments", *first["loc"])
        raise PluginConfigurationError(place, first["msg"]) from error
    except ValueError as error:
        raise PluginConfigurationError((*location, "arguments"), str(error)) from error
    steps = (PreBinds, BindsInTurn, PostBinds, RollsBack, ValidatesPods, MutatesPods)
    if not isinstance(plugin, steps):
        message = f"plugin {configuration.name!r} implements none of the steps"
        raise PluginConfigurationError((*location, "name"), message)
    return plugin
