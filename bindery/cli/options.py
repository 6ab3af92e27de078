"""Options that several commands share.

Separate from the code that reads the cluster, so that `--help` does not import that code.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """The values of `-o`."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class WideFormat(StrEnum):
    """The values of `-o` for a command that can draw more columns."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True)
class Origin:
    """The input of a plan: a file or a cluster, a configuration and a pool."""

    file: Path | None = None
    config: Path | None = None
    node_pool: str | None = None


def command_group(description: str) -> typer.Typer:
    """Return a group of commands, of which even a single one is called by its name."""
    group = typer.Typer(help=description, no_args_is_help=True)
    group.callback()(lambda: None)
    return group


def _known_level(level: str) -> str:
    from bindery.observability.plainlogs import level_number

    try:
        level_number(level)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return level


FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="SCENARIO", help="Use this scenario, not a cluster."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The scheduler's configuration file."),
]
PoolOption = Annotated[
    str | None, typer.Option("--node-pool", metavar="POOL", help="Ask this pool's scheduler.")
]
RowsOption = Annotated[
    list[Path] | None,
    typer.Option("--rows", metavar="FILE", help="A file with rows of yours; may be repeated."),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Default: the namespace of the kubeconfig's context."),
]

LogLevel = Annotated[
    str, typer.Option(callback=_known_level, help="debug, info, warning or error.")
]


def namespace_of(context: typer.Context, given: str | None, file: Path | None) -> str:
    """Return the namespace `given`, else the context's; with a scenario file `default`.

    Raises:
        KubeError: the configuration of the cluster cannot be used.
    """
    if file is not None:
        return given or "default"
    from bindery.cli.connection import chosen_namespace

    return chosen_namespace(context, given)


def examples(*commands: tuple[str, str]) -> str:
    """Return examples for the end of a command's help: calls of `bindery` with their purposes."""
    width = max(len(command) for command, _ in commands)
    lines = [f"  bindery {command:<{width}}  {purpose}" for command, purpose in commands]
    return "\n".join(["\b", "Examples:", *lines])
