"""Builds the configured plugins, in the scheduler and in the binder.

Plugins are found as entry points. An entry point is a class, or another callable, with the
attribute `name`. The attribute `arguments` is the pydantic model of the plugin's arguments; the
plugin is then built from an instance of it. Without this attribute a plugin takes no arguments.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel, ValidationError

from bindery.api.base import ApiModel
from bindery.api.configuration import BinderPluginConfiguration
from bindery.api.spelling import no_such
from bindery.api.yamlfile import Location, describe, format_location


class NoArguments(ApiModel):
    """The model of plugins without arguments."""


class PluginConfigurationError(Exception):
    """A configured plugin cannot be used. The caller shows the location and exits with code 2."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(f"{format_location(location)}: {message}")
        self.location = location
        """The key in the configuration, for example `plugins[0].arguments.gpu`."""
        self.message = message


@lru_cache(maxsize=8)  # the search reads a file of each installed distribution
def installed(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001  # is the key
    """Return the entry points of `group`; `path` is `sys.path`, a key of the cache."""
    return tuple(entry_points(group=group))


def build(
    configured: Iterable[BinderPluginConfiguration], available: Iterable[EntryPoint]
) -> Iterator[Any]:
    """Yield the plugins of `configured`, in this order, from the entry points `available`.

    Raises:
        PluginConfigurationError: a plugin is unknown, is named twice, cannot be loaded, or does
            not accept its arguments.
    """
    known = {point.name: point for point in available}
    seen: set[str] = set()
    for index, item in enumerate(configured):
        name_key: Location = ("plugins", index, "name")
        if item.name in seen:
            raise PluginConfigurationError(name_key, f"plugin {item.name} is named twice")
        seen.add(item.name)
        point = known.get(item.name)
        if point is None:
            raise PluginConfigurationError(name_key, no_such("plugin", item.name, known))
        yield _instance(_factory(point, name_key), item, ("plugins", index, "arguments"))


def _factory(point: EntryPoint, name_key: Location) -> Any:
    try:
        factory = point.load()
    except Exception as error:  # importing a third party's module can raise anything
        message = f"plugin {point.name} cannot be loaded: {type(error).__name__}: {error}"
        raise PluginConfigurationError(name_key, message) from error
    model = _model(factory)
    if not (callable(factory) and isinstance(model, type) and issubclass(model, BaseModel)):
        message = (
            f"{point.value} is not a plugin: it is not callable, "
            "or its `arguments` is not a pydantic model"
        )
        raise PluginConfigurationError(name_key, message)
    # The scheduler's and the binder's part of a plugin find each other's data by this name.
    if getattr(factory, "name", None) != point.name:
        message = f"{point.value} has the name {getattr(factory, 'name', None)!r}"
        raise PluginConfigurationError(name_key, f"plugin {point.name}: {message}")
    return factory


def _model(factory: Any) -> Any:
    return getattr(factory, "arguments", NoArguments)


def _instance(factory: Any, item: BinderPluginConfiguration, arguments_key: Location) -> Any:
    model = _model(factory)
    try:
        arguments = model.model_validate(item.arguments)
        return factory() if model is NoArguments else factory(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        message = f"plugin {item.name}: {describe(first)}"
        raise PluginConfigurationError((*arguments_key, *first["loc"]), message) from error
    except ValueError as error:  # from the plugin, for values that exclude each other
        message = f"plugin {item.name}: {error}"
        raise PluginConfigurationError(arguments_key, message) from error
    except TypeError as error:  # mostly: it wants arguments, but declares no model of them
        message = f"plugin {item.name} cannot be built: {error}"
        raise PluginConfigurationError((*arguments_key[:-1], "name"), message) from error
