"""Names in configurations lead to the code, and a word has one meaning."""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import entry_points
from inspect import getmodule
from pathlib import Path

import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import BINDER_PLUGINS, SCHEDULER_PLUGINS
from bindery.scheduler.actions import registry

PRODUCT = Path(__file__).resolve().parents[2] / "bindery"
TOPOLOGY = ("actions", "planning", "solver")
"""The stages of the scheduler that choose topology domains, and know no NUMA zones."""
DECLARATIONS = ("api", "kube", "scenario")
"""Here classes of one name declare one kind of object, as its writers and its readers see it."""
MOST_MEANINGS = 2
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
def test_a_plugin_name_is_one_word_and_the_name_of_its_module_or_package(
    package: str, name: str, module: str
) -> None:
    assert ONE_WORD.fullmatch(name)
    assert module in {f"{package}.{name}", f"{package}.{name}.plugin"}


@pytest.mark.parametrize("name", registry.ACTIONS)
def test_an_action_name_is_one_word(name: str) -> None:
    assert ONE_WORD.fullmatch(name)


@pytest.mark.parametrize("name", ["stalegangeviction", "runtimelimit", "allocate", "backfill"])
def test_the_module_of_an_action_has_its_name(name: str) -> None:
    module = getmodule(type(registry.ACTIONS[name](SchedulerConfiguration())))

    assert module is not None
    assert module.__name__ == f"bindery.scheduler.actions.{name}"


@pytest.mark.parametrize("stage", TOPOLOGY)
def test_a_topology_domain_is_not_called_a_zone(stage: str) -> None:
    found = set()
    for path in (PRODUCT / "scheduler" / stage).rglob("*.py"):
        with path.open("rb") as file:
            tokens = tokenize.tokenize(file.readline)
            names = [each.string for each in tokens if each.type == tokenize.NAME]
        found |= {f"{path.name}: {name}" for name in (path.stem, *names) if "zone" in name.lower()}

    assert not found


def test_no_class_name_has_three_meanings() -> None:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for path in PRODUCT.rglob("*.py"):
        module = path.relative_to(PRODUCT)
        place = "declarations" if module.parts[0] in DECLARATIONS else str(module)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(place)

    assert {name: found for name, found in places.items() if len(found) > MOST_MEANINGS} == {}
