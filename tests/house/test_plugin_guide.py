"""The page about plugins: its examples work unchanged, and its tables are complete."""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from bindery.api.configuration import (
    BinderConfiguration,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.api.plugins import PluginConfigurationError
from bindery.binder.plugins import interface as binder_points
from bindery.binder.plugins import registry as binder_registry
from bindery.kube.objects.bindrequests import BindRequestSpec
from bindery.scheduler.plugins import registry as scheduler_registry
from bindery.scheduler.plugins.interface import jobs, nodes, state
from tests.binder import binderworld, fakebinder, quicktime

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MODULES = {
    text.splitlines()[0].removeprefix("# "): text for kind, text in BLOCKS if kind == "python"
}
TESTS = [name.removesuffix(".py") for name in MODULES if name.startswith("test_")]
LISTS = {
    text.splitlines()[0].removeprefix("# "): yaml.safe_load(text)["plugins"]
    for kind, text in BLOCKS
    if kind == "yaml" and "plugins:" in text.splitlines()
}
MOST_LINES_OF_AN_EXAMPLE = 14  # of code; an example that is longer is not read


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the modules and entry points of the page as an installer would."""
    (project,) = (tomllib.loads(text)["project"] for kind, text in BLOCKS if kind == "toml")
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    information = tmp_path / "bindery_racks-1.0.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (information / "entry_points.txt").write_text("\n".join(points) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in MODULES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_of_the_page_pass(name: str) -> None:
    tests = functions_of(import_module(name))

    assert tests
    for test in tests:
        test()


def test_the_plugins_of_the_page_are_short() -> None:
    plugins = [text for name, text in MODULES.items() if not name.startswith("test_")]

    assert len(plugins) == 2
    for text in plugins:
        body = text[text.index("class Racks") :]
        assert len([line for line in body.splitlines() if line.strip()]) <= MOST_LINES_OF_AN_EXAMPLE


def test_the_binder_plugin_writes_the_rack_when_a_gang_is_bound() -> None:
    (plugin,) = binder_registry.build([PluginConfiguration(name="racks")])
    world = binderworld.World()
    planned(world, binderworld.gang(world, 2), {"racks": {"rack": "r1"}})

    async def bind() -> None:
        binder = fakebinder.Binder(world, more_plugins=[plugin])
        binder.list_requests()
        await binder.settle()

    quicktime.play(bind())

    assert [pod.node for pod in world.pods.values()] == ["node-0", "node-1"]
    assert {pod.annotations["example.com/rack"] for pod in world.pods.values()} == {"r1"}


def test_the_binder_plugin_fails_a_gang_on_nodes_without_racks() -> None:
    (plugin,) = binder_registry.build([PluginConfiguration(name="racks")])
    world = binderworld.World()
    binderworld.gang(world, 2)

    async def bind() -> None:
        binder = fakebinder.Binder(world, more_plugins=[plugin])
        binder.list_requests()
        await binder.settle()

    quicktime.play(bind())

    assert world.bound() == {}
    (request,) = world.requests.values()
    assert (request.status.phase, request.status.reason) == ("Failed", "NoRack")


def test_the_configurations_of_the_page_are_the_defaults_and_its_plugin() -> None:
    scheduler = SchedulerConfiguration(plugins=LISTS["scheduler"])
    binder = BinderConfiguration(plugins=LISTS["binder and webhook"])

    assert names(scheduler.plugins) == [*names(SchedulerConfiguration().plugins), "racks"]
    assert names(binder.plugins) == [*names(BinderConfiguration().plugins), "racks"]
    assert names(scheduler_registry.load(scheduler.plugins).plugins) == names(scheduler.plugins)


def test_the_request_of_the_page_has_the_data_of_the_plugin_where_the_binder_reads_it() -> None:
    (request,) = (
        yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml" and "pluginData" in text
    )

    spec = msgspec.convert(request["spec"], BindRequestSpec)

    assert msgspec.to_builtins(spec.statements[0].pods[0])["pluginData"] == {
        "racks": {"rack": "r1"}
    }
    assert set(request["spec"]) == {"statements"}


def test_an_unknown_argument_of_a_plugin_of_the_page_is_an_error() -> None:
    misspelt = [PluginConfiguration(name="racks", arguments={"lable": "x"})]

    with pytest.raises(PluginConfigurationError, match=r"plugins\[0\]\.arguments\.lable: "):
        scheduler_registry.load(misspelt)
    with pytest.raises(PluginConfigurationError, match=r"plugins\[0\]\.arguments\.lable: "):
        binder_registry.build(misspelt)


@pytest.mark.parametrize("interface", [jobs, nodes, state, binder_points])
def test_the_page_lists_every_extension_point_with_its_methods(interface: ModuleType) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    points = {
        name: value
        for name, value in vars(interface).items()
        if getattr(value, "_is_protocol", False)
        and value.__module__ == interface.__name__
        and name not in ("Plugin", "BinderPlugin")
    }

    assert points
    for name, point in points.items():
        methods = {method for method in vars(point) if method[0] != "_" and method != "name"}
        assert set(re.findall(r"`(\w+)`", rows.get(name, ""))) == methods, name


def planned(world: Any, requests: list[Any], data: dict[str, Any]) -> None:
    """Let the scheduler have handed over `data` for every pod."""
    for request in requests:
        (statement,) = request.spec.statements
        pods = [msgspec.structs.replace(pod, plugin_data=data) for pod in statement.pods]
        changed = msgspec.structs.replace(statement, pods=pods)
        world.respecify(request.metadata.name, statements=[changed])


def functions_of(module: ModuleType) -> list[Callable[[], None]]:
    return [value for name, value in vars(module).items() if name.startswith("test_")]


def names(plugins: Any) -> list[str]:
    return [plugin.name for plugin in plugins]
