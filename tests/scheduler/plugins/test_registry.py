"""Plugins are found by the Protocol that they implement."""

from importlib.metadata import EntryPoint
from typing import Any, Protocol, runtime_checkable

import pytest

from bindery.api.configuration import PluginConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.scheduler.plugins import registry
from bindery.scheduler.plugins.interface.nodes import PackingPolicy
from bindery.scheduler.plugins.registry import PluginSet, load
from tests.scheduler.schedulerworld import configuration


@runtime_checkable
class Paints(Protocol):
    """An extension point that no module of the scheduler knows."""

    def colour(self) -> str:
        """Return a colour."""
        ...


class Painter:
    """A plugin that implements it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def colour(self) -> str:
        return self.name


class Other:
    """A plugin that does not."""

    name = "other"


def test_a_new_extension_point_needs_only_its_protocol() -> None:
    red, blue = Painter("red"), Painter("blue")
    plugins: list[Any] = [red, Other(), blue]

    assert PluginSet(plugins).of(Paints) == (red, blue)


def test_the_plugins_of_an_extension_point_are_looked_up_once() -> None:
    plugins = PluginSet([Painter("red")])

    assert plugins.of(Paints) is plugins.of(Paints)


def test_packing_policies_are_called_in_the_configured_order() -> None:
    policies = load(configuration().plugins).of(PackingPolicy)

    assert [policy.name for policy in policies] == ["fragmentation", "nodeplacement"]


class Misspelt:
    """A plugin whose only hook has another name than that of the Protocol."""

    name = "misspelt"

    def job_node_failure(self, _session: object, _job: object) -> list[object]:
        return []


def test_a_plugin_that_implements_no_extension_point_is_refused_with_the_name_that_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("misspelt", f"{__name__}:Misspelt", "bindery.scheduler_plugins")
    monkeypatch.setattr(registry, "installed", lambda *_: (point,))

    with pytest.raises(PluginConfigurationError) as error:
        load([PluginConfiguration(name="misspelt")])

    assert error.value.location == ("plugins", 0, "name")
    text = "implements no extension point; it has job_node_failure (did you mean job_node_failures"
    assert text in error.value.message
