"""No dead parts of interfaces: each enum member is written, each extension point is used."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from bindery.api import bindrequest, configuration, states
from bindery.api.hami import names as hami_names
from bindery.api.hami import vendor, wishes
from bindery.binder.outcome import outcome
from bindery.binder.plugins import interface as binder_points
from bindery.scheduler.plugins.interface import jobs, nodes, state

PACKAGE = Path(__file__).resolve().parents[2] / "bindery"
WRITERS = [
    *(
        path
        for folder in ("scheduler", "binder", "nodeagent")
        for path in (PACKAGE / folder).rglob("*.py")
    ),
    *(PACKAGE / "api" / "hami").rglob("*.py"),
]

WORDS = [
    *(states.GangState, states.Phase, bindrequest.ReceivedResourceType),
    *(bindrequest.BindFailureReason, outcome.BoundReason, outcome.WaitReason),
    *(hami_names.BindPhase, hami_names.DeviceModeWord, hami_names.Isolation, vendor.Lock),
    *(wishes.DevicePolicy, wishes.NodePolicy),
    configuration.VictimPreference,
]
"""The words that stand in objects of the API."""

WRITTEN_BY_OTHERS: dict[type[StrEnum], set[str]] = {
    hami_names.DeviceModeWord: {"MPS"},  # by HAMi's device plugin, at the node
    wishes.DevicePolicy: set(wishes.DevicePolicy.__members__),  # by users
    wishes.NodePolicy: set(wishes.NodePolicy.__members__),  # by users
}

INTERFACES: list[tuple[ModuleType, str]] = [
    (jobs, "scheduler"),
    (nodes, "scheduler"),
    (state, "scheduler"),
    (binder_points, "binder"),
]
NOT_EXTENSION_POINTS = {"BinderPlugin", "PluginFactory"}
"""What every binder plugin has, and what makes one."""


def points() -> Iterator[tuple[str, str]]:
    """Yield the component and the name of each extension point."""
    for interface, component in INTERFACES:
        for name, value in vars(interface).items():
            is_own = getattr(value, "__module__", "") == interface.__name__
            if (
                is_own
                and getattr(value, "_is_protocol", False)
                and name not in NOT_EXTENSION_POINTS
            ):
                yield component, name


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.__name__)
def test_every_enum_member_is_written_somewhere(words: type[StrEnum]) -> None:
    written = {member for enum, member in used_by_writers() if enum == words.__name__}

    assert set(words.__members__) - WRITTEN_BY_OTHERS.get(words, set()) - written == set()


def test_every_string_enum_of_the_api_is_checked() -> None:
    declared = {
        node.name
        for path in (PACKAGE / "api").rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and "StrEnum" in map(ast.unparse, node.bases)
    }

    api = {words.__name__ for words in WORDS if words.__module__.startswith("bindery.api")}
    assert declared == api


@pytest.mark.parametrize(("component", "point"), list(points()))
def test_every_extension_point_is_used_by_its_component(component: str, point: str) -> None:
    assert point in looked_for(component)


@cache
def looked_for(component: str) -> frozenset[str]:
    """Return the names of all types that `component` asks for, one by one or in a list."""
    return frozenset(
        name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
        for path in (PACKAGE / component).rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and (ast.unparse(node.func) == "isinstance" or getattr(node.func, "attr", "") == "of")
        for argument in node.args
        for name in ast.walk(argument)
    )


@cache
def used_by_writers() -> frozenset[tuple[str, str]]:
    return frozenset(use for path in WRITERS for use in used_outside_comparisons(path))


def used_outside_comparisons(path: Path) -> Iterator[tuple[str, str]]:
    """Yield `Name.attribute` wherever it is a value and not merely compared with one."""
    compared = {
        id(inner)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Compare)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and id(node) not in compared:
            yield ast.unparse(node.value).rpartition(".")[2], node.attr


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
