"""Blocks of a page of docs/, and how a test runs them: as written, from the top to the end.

- A `console` block has commands after `$ `, and below each the lines that it must print.
- An indented block has commands alone.
- A `yaml` block is written to the file that its first line names, such as `# queue.yaml`.
- A block below a comment `<!-- not run: REASON -->` is not run.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
_REASON = re.compile(r"^ *<!-- not run: (?P<reason>\S.*\S) -->$")
_FILE = re.compile(r"^# (?P<name>[\w.-]+\.yaml)$")
_COMMAND_S = 180.0


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    line: int
    language: str
    """That of the fence; "" for an indented block."""
    text: str
    reason: str = ""
    """Why it is not run."""


@dataclass(frozen=True)
class Command:
    """A command, and the lines of its output that the page shows."""

    text: str
    shown: tuple[str, ...] = ()


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of `page` in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at, reason = 0, ""
    while at < len(lines):
        begin, line = at, lines[at]
        fence = _FENCE.match(line)
        if fence:
            at = lines.index(f"{fence['indent']}```", begin + 1)
            inside = [each.removeprefix(fence["indent"]) for each in lines[begin + 1 : at]]
            yield Block(begin + 1, fence["language"], "\n".join(inside), reason)
        elif line.startswith("    ") and not lines[begin - 1].strip():
            while at + 1 < len(lines) and lines[at + 1].startswith("    "):
                at += 1
            inside = [each.removeprefix("    ") for each in lines[begin : at + 1]]
            yield Block(begin + 1, "", "\n".join(inside), reason)
        found = _REASON.match(line)
        reason = found["reason"] if found else reason if not line.strip() else ""
        at += 1


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block, each in one line."""
    whole = block.text.replace("\\\n", " ").splitlines()
    if block.language == "":
        return [Command(line) for line in whole]
    found: list[Command] = []
    for line in whole:
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ ")))
        else:
            assert found, f"line {block.line}: output before a command"
            found[-1] = Command(found[-1].text, (*found[-1].shown, line))
    return found


def run_page(page: Path, directory: Path, environment: Mapping[str, str]) -> int:
    """Run the blocks of `page` in `directory`, and return how many commands were run.

    Raises:
        AssertionError: a command failed, printed something else, or a block is of no known kind.
    """
    for name in ("charts", "crds", "examples"):  # as in a clone
        (directory / name).symlink_to(ROOT / name)
    count = 0
    for block in blocks_of(page):
        place = f"{page.name}:{block.line}"
        if block.reason:
            continue
        if block.language == "yaml":
            first, _, _ = block.text.partition("\n")
            named = _FILE.match(first)
            assert named, f"{place}: the first line names no file"
            (directory / named["name"]).write_text(block.text + "\n", encoding="utf-8")
            continue
        assert block.language in ("", "console"), f"{place}: {block.language} is not run"
        for command in commands_of(block):
            _run(command, place, directory, environment)
            count += 1
    return count


def _run(command: Command, place: str, directory: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )
    print(f"$ {command.text}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0, f"{place}: {command.text}\n{done.stdout}{done.stderr}"
    missing = unmatched(command.shown, done.stdout)
    assert missing is None, f"{place}: {command.text} does not print {missing!r}\n{done.stdout}"


def unmatched(shown: tuple[str, ...], printed: str) -> str | None:
    """Return the first line of `shown` that `printed` does not have, in their order; else None.

    `…` stands for any text in a line, and alone for any lines; spaces of tables may differ.
    """
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown:
        parts = [re.escape(" ".join(part.split())) for part in line.split("…")]
        pattern = re.compile(r"\s*.*\s*".join(parts))
        if line.strip() != "…" and not any(pattern.fullmatch(each) for each in lines):
            return line
    return None
