"""Invalid configurations end the startup with the position of the error."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict

from bindery.api.configuration import PluginConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.binder.plugins.interface import BindContext, PodManifest
from bindery.binder.plugins.registry import build
from tests.commandline import CommandLine


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")
    seconds: int = 1


class Patient:
    """Implements every step."""

    name: ClassVar[str] = "patient"
    arguments: ClassVar[type[BaseModel]] = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self.seconds = arguments.seconds

    def validate(self, pod: PodManifest) -> list[str]:
        return [] if pod else ["it is empty"]

    def mutate(self, pod: PodManifest) -> PodManifest:
        return {**pod, "seen": True}

    async def pre_bind(self, context: BindContext) -> None:
        context.state["seen"] = True

    async def post_bind(self, context: BindContext) -> None:
        context.state["seen"] = True

    async def rollback(self, context: BindContext) -> None:
        context.state.clear()


class Idle:
    """Implements none."""

    name: ClassVar[str] = "idle"
    arguments: ClassVar[type[BaseModel]] = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self.seconds = arguments.seconds


class Hasty(Patient):
    name: ClassVar[str] = "another"


class Plain:
    """Has no arguments."""

    name: ClassVar[str] = "plain"

    def validate(self, pod: PodManifest) -> list[str]:
        return [] if pod else ["it is empty"]


class Undeclared(Plain):
    """Expects arguments without a model of them."""

    name: ClassVar[str] = "undeclared"

    def __init__(self, arguments: object) -> None:
        self.arguments = arguments


def point(name: str, attribute: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{attribute}", "bindery.binder_plugins")


INSTALLED = [
    point("patient", "Patient"),
    point("hasty", "Hasty"),
    point("idle", "Idle"),
    point("broken", "does_not_exist"),
    point("number", "INSTALLED"),
    point("plain", "Plain"),
    point("undeclared", "Undeclared"),
]


def test_plugins_are_built_in_the_order_of_the_configuration() -> None:
    (plugin,) = build([PluginConfiguration(name="patient", arguments={"seconds": 5})], INSTALLED)

    assert isinstance(plugin, Patient)
    assert plugin.seconds == 5


def test_a_plugin_without_arguments_needs_no_arguments_model() -> None:
    (plugin,) = build([PluginConfiguration(name="plain")], INSTALLED)

    assert isinstance(plugin, Plain)


@pytest.mark.parametrize(
    ("configured", "place", "text"),
    [
        (
            [{"name": "unknown"}],
            "plugins[0].name",
            "known: broken, hasty, idle, number, patient, plain, undeclared",
        ),
        ([{"name": "patient"}, {"name": "patient"}], "plugins[1].name", "named twice"),
        (
            [{"name": "patient", "arguments": {"seconds": "long"}}],
            "plugins[0].arguments.seconds",
            "a whole number is expected",
        ),
        (
            [{"name": "patient", "arguments": {"minutes": 1}}],
            "plugins[0].arguments.minutes",
            "plugin patient: unknown key",
        ),
        (
            [{"name": "plain", "arguments": {"x": 1}}],
            "plugins[0].arguments.x",
            "plugin plain: unknown key",
        ),
        ([{"name": "undeclared"}], "plugins[0].name", "plugin undeclared cannot be built"),
        ([{"name": "broken"}], "plugins[0].name", "cannot be loaded"),
        ([{"name": "number"}], "plugins[0].name", "is not a plugin"),
        ([{"name": "idle"}], "plugins[0].name", "implements none of the steps"),
        ([{"name": "hasty"}], "plugins[0].name", "has the name 'another'"),
    ],
)
def test_an_unusable_plugin_is_reported_with_its_position(
    configured: list[dict[str, Any]], place: str, text: str
) -> None:
    with pytest.raises(PluginConfigurationError) as error:
        build([PluginConfiguration.model_validate(item) for item in configured], INSTALLED)

    assert str(error.value).startswith(f"{place}: ")
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("plugins: [{name: nosuch}]", "there is no plugin nosuch; known: dra, "),
        ("concurrentBinds: 0", "concurrentBinds"),
        ("concurentBinds: 3", "concurentBinds"),
    ],
)
def test_an_invalid_configuration_exits_with_code_2_and_the_line_of_the_error(
    command_line: CommandLine, tmp_path: Path, line: str, text: str
) -> None:
    file = tmp_path / "binder.yaml"
    file.write_text(
        f"apiVersion: scheduling.bindery.dev/v1alpha1\nkind: BinderConfiguration\n{line}\n"
    )

    done = command_line("binder", "run", "--config", str(file))

    assert done.returncode == 2
    assert f"{file}:3: " in done.stderr
    assert text in done.stderr
