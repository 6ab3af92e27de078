"""The README shows the real output of the commands."""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from tests.commandline import CommandLine

ROOT = Path(__file__).parents[2]
INDENT = "    "
PROMPT = f"{INDENT}$ bindery "


def examples() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the README that is shown with its output."""
    lines = (ROOT / "README.md").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith(PROMPT):
            output = takewhile(lambda text: text.startswith(INDENT), lines[number + 1 :])
            yield line.removeprefix(PROMPT), [text.removeprefix(INDENT) for text in output]


@pytest.mark.parametrize(("command", "shown"), list(examples()), ids=lambda value: str(value)[:20])
def test_the_readme_shows_the_output_of_a_command(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, shown: list[str]
) -> None:
    monkeypatch.chdir(ROOT)

    done = command_line(*command.split())

    assert [line.rstrip() for line in done.stdout.splitlines()] == shown


def test_the_readme_shows_every_query_command() -> None:
    assert {command.split()[0] for command, _ in examples()} == {"queues", "explain", "whatif"}
