"""docs/nodecore.md: its functions exist, its examples pass, and the signatures are current."""

import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.house import nodecorereference

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "nodecore.md"
PACKAGE = "bindery.nodecore"

IN_BACKTICKS = re.compile(r"`([^`]+)`")
FOLDER = re.compile(r"`nodecore/([\w/.]+)`")
EXAMPLES = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"([A-Za-z_][\w.]*)")


def test_every_function_of_the_page_exists() -> None:
    assert list(missing()) == []


def test_names_that_do_not_exist_are_detected() -> None:
    package = importlib.import_module(PACKAGE)

    assert resolved(package, "cpu.packed.take_packed")
    assert not resolved(package, "cpu.packed.take_nothing")
    assert not resolved(package, "cpu.nothing")


def test_every_section_has_functions() -> None:
    sections = {section for section, *_ in named()}

    assert len(sections) >= 11


def test_every_section_has_an_example() -> None:
    sections = PAGE.read_text().split("\n## ")[1:]

    without = [text.partition("\n")[0] for text in sections if not EXAMPLES.search(text)]
    assert without == ["The proof"]


def test_the_examples_pass_as_doctests() -> None:
    names: dict[str, Any] = {}
    failures: list[str] = []
    runner = doctest.DocTestRunner()
    for number, text in enumerate(EXAMPLES.findall(PAGE.read_text())):
        example = doctest.DocTestParser().get_doctest(text, names, f"example {number}", None, None)
        runner.run(example, out=failures.append, clear_globs=False)
        names.update(example.globs)

    assert failures == []


def test_the_signatures_equal_the_source() -> None:
    page = nodecorereference.PAGE.read_text(encoding="utf-8")

    assert page == nodecorereference.page(), "nodecore changed: run `make crds`"


def missing() -> Iterator[str]:
    """Yield the names that lead nowhere: from the name before, the section, or its modules."""
    seen: dict[str, list[object]] = {}
    for heading, packages, row, name in named():
        before = seen.setdefault(f"{heading} {row}", [])
        modules = seen.setdefault(heading, [])
        for place in (*before, *packages, *modules, importlib.import_module(PACKAGE)):
            found = resolved(place, name)
            if found:
                before[:0] = found[::-1]
                modules += [one for one in found if isinstance(one, ModuleType)]
                break
        else:
            yield f"{heading}: {name}"


def named() -> Iterator[tuple[str, list[ModuleType], int, str]]:
    """Yield section, its packages, the line, and each name in the column of the functions."""
    heading, packages, column = "", list[ModuleType](), 0
    for number, line in enumerate(PAGE.read_text().splitlines()):
        if line.startswith("## "):
            heading = line
            packages = [module(path) for path in FOLDER.findall(line)]
        cells = line.removeprefix("| ").split(" | ")
        if line.startswith("| ") and {"Here", "Function"} & set(cells):
            column = cells.index("Function") if "Function" in cells else cells.index("Here")
        elif line.startswith("| ") and len(cells) >= 3:
            for text in IN_BACKTICKS.findall(cells[column]):
                match = NAME.match(text)
                assert match is not None, text
                yield heading, packages, number, match[1].rstrip(".")


def module(path: str) -> ModuleType:
    name = path.removesuffix(".py").replace("/", ".")
    return importlib.import_module(f"{PACKAGE}.{name}")


def resolved(place: object, name: str) -> list[object]:
    """Return the objects on the way of a dotted name from `place`, empty if it leads nowhere."""
    found: list[object] = []
    for part in name.split("."):
        inner = getattr(place, part, None)
        if inner is None and isinstance(place, ModuleType):
            try:
                inner = importlib.import_module(f"{place.__name__}.{part}")
            except ModuleNotFoundError:
                return []
        if inner is None:
            return []
        found.append(inner)
        place = inner
    return found
