"""Plugins are found by the Protocol that they implement."""

from typing import Any, Protocol, runtime_checkable

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


def test_a_new_extension_point_needs_nothing_but_its_protocol() -> None:
    red, blue = Painter("red"), Painter("blue")
    plugins: list[Any] = [red, Other(), blue]

    assert PluginSet(plugins).of(Paints) == (red, blue)


def test_the_plugins_of_an_extension_point_are_found_once() -> None:
    plugins = PluginSet([Painter("red")])

    assert plugins.of(Paints) is plugins.of(Paints)


def test_the_policies_of_packing_are_asked_in_the_configured_order() -> None:
    policies = load(configuration().plugins).of(PackingPolicy)

    assert [policy.name for policy in policies] == ["fragmentation", "nodeplacement"]
