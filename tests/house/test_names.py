"""Names that users write lead to the code, and a word has one meaning."""

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from inspect import getmodule

import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import BINDER_PLUGINS, SCHEDULER_PLUGINS
from bindery.scheduler.actions import registry

ONE_WORD = re.compile(r"[a-z]+")
PACKAGES = {
    "bindery.scheduler.plugins": SCHEDULER_PLUGINS,
    "bindery.binder.plugins": BINDER_PLUGINS,
}


def shipped() -> Iterator[tuple[str, str, str]]:
    """Yield package, name and module of each shipped plugin."""
    for package, group in PACKAGES.items():
        for point in entry_points(group=group):
            if point.value.startswith("bindery."):
                yield package, point.name, point.module


@pytest.mark.parametrize(("package", "name", "module"), sorted(shipped()))
def test_a_plugin_is_one_word_and_its_module_or_package_has_its_name(
    package: str, name: str, module: str
) -> None:
    assert ONE_WORD.fullmatch(name)
    assert module in {f"{package}.{name}", f"{package}.{name}.plugin"}


@pytest.mark.parametrize("name", registry.ACTIONS)
def test_an_action_is_one_word(name: str) -> None:
    assert ONE_WORD.fullmatch(name)


@pytest.mark.parametrize("name", ["stalegangeviction", "runtimelimit", "allocate", "backfill"])
def test_the_module_of_an_action_has_its_name(name: str) -> None:
    module = getmodule(type(registry.ACTIONS[name](SchedulerConfiguration())))

    assert module is not None
    assert module.__name__ == f"bindery.scheduler.actions.{name}"
