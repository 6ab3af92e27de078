"""docs/workloads.md lists all kinds, and all keys of rows."""

import re
from pathlib import Path

from bindery.api.podkeys import GROUPER_KEYS
from bindery.cli.processes.workloads import described
from bindery.grouper.table import load
from bindery.grouper.table.loading import known_keys
from bindery.grouper.table.paths import OWN_FUNCTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()


def test_the_table_of_kinds_equals_the_rows() -> None:
    expected = [
        "| {kind} | {group} | {minimum} | {class} |".format(**cells)
        for cells in ({key: cell(text) for key, text in described(row).items()} for row in load())
    ]
    section = PAGE.partition("\n## Kinds\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]

    assert lines == expected, "write the lines of the rows into the page"


def cell(text: str) -> str:
    """Return a cell: kinds, labels and paths in the type of code."""
    plain = {"independent pods", "owner below", "sum of roles", "all pods that are left"}
    if not text or text in plain or text.isdigit():
        return text
    if ", else " in text:
        return ", else ".join(cell(part) for part in text.split(", else "))
    for words in (" named by ", "value of ", " with "):
        if words in text:
            before, _, after = text.partition(words)
            return f"{cell(before)}{words}`{after}`"
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def test_every_key_of_a_row_is_explained() -> None:
    keys = set(known_keys())

    explained = set(re.findall(r"`(\w+)(?:: [^`]*)?`", PAGE))
    assert keys - {"apiVersion", "rows"} <= explained


def test_every_key_of_users_and_every_function_is_explained() -> None:
    assert {key for key in GROUPER_KEYS if f"`{key}`" not in PAGE} == set()
    assert {name for name in OWN_FUNCTIONS if f"`{name}(" not in PAGE} == set()
