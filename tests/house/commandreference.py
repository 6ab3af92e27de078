"""The page of all commands with their options, generated from the command line itself.

`make crds` writes it; a test fails when it differs.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from bindery.cli import lazy

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "commands.md"

_HEAD: Final = """# All commands

Every command with its arguments and options, as `--help` shows them.
[The command line](command-line.md) explains what the answers mean.

This page is generated from the commands by `make crds`.
"""
_FOOT: Final = "\nNext: [evictions](evictions.md)\n"


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for name, each in lazy.COMMANDS.items():
        app: typer.Typer = import_module(f"bindery.cli.{each.module}").app
        parts += _sections(typer.main.get_command(app), f"bindery {name}")
    return "".join([*parts, _FOOT])


def _sections(command: Any, name: str) -> Iterator[str]:
    """Yield a section for each command that can be run."""
    inner = getattr(command, "commands", {})
    if inner:
        for key, each in inner.items():
            yield from _sections(each, f"{name} {key}")
        return
    yield f"\n## `{name}`\n\n{_plain(command.help)}\n"
    rows = [_row(each) for each in command.params if not each.hidden]
    if rows:
        yield "\n| Argument or option | Default | Meaning |\n|---|---|---|\n"
        yield from rows


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = parameter.metavar or parameter.name.upper()
    else:
        shown = ", ".join((*parameter.opts, *parameter.secondary_opts))
        if not parameter.is_flag:
            shown = f"{shown} {_value(parameter)}"
    shown = shown.replace("|", "\\|")
    return f"| `{shown}` | {_default(parameter)} | {_plain(parameter.help)} |\n"


def _value(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    choices = getattr(parameter.type, "choices", ())
    words = [str(getattr(each, "value", each)) for each in choices]
    return "|".join(words) if words else str(parameter.type.name).upper()


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or callable(value) or not parameter.show_default or value in (False, (), ""):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
