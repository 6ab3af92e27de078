"""Docstrings avoid words and phrases that need a second reading (CONTRIBUTING, *Style*)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(ROOT / name for name in ("bindery", "devcluster", "tests"))
"""The packages in which the rule holds."""
CODE = re.compile(r"`[^`]*`|\"[^\"]*\"")
AVOIDED = re.compile(
    r"\b(says?|said|tells?|told|whom|nobody|somebody|anew|this one|such a one|which ones?"
    r"|those that|so that one(?= (is|has|can|may|must)\b)|(is|are) to be"
    r"|what \w+( \w+)? (has|have)|comes? to its end)\b",
    re.IGNORECASE,
)


def files() -> list[Path]:
    """Return the modules in which the rule holds."""
    return [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, those of attributes included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, " ".join(text.split())


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_avoid_phrases_that_need_a_second_reading(path: Path) -> None:
    found = {
        line: turn.group()
        for line, text in docstrings(path)
        if (turn := AVOIDED.search(CODE.sub("", text)))
    }

    assert found == {}
