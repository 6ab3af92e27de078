"""Rules of the code that no linter checks."""

import ast
import re
from pathlib import Path

import pytest

from tests.required import lacking
from tests.spreading import LONGEST

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
MODULES = sorted(
    path
    for folder in ("bindery", "devcluster")
    for path in (ROOT / folder).rglob("*.py")
    if not path.name.endswith("_pb2.py")  # generated
)
MOST_LINES_OF_A_MODULE = 500  # the length follows the idea; beyond this it is more than one
MOST_LINES_OF_A_FUNCTION = 70


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_within_their_maximum_length(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)

    assert ast.get_docstring(tree), "a module says what it is for"
    assert len(text.splitlines()) <= MOST_LINES_OF_A_MODULE
    too_long = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    ]
    assert not too_long


def test_the_files_of_tests_that_run_first_exist() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []


def test_no_test_is_skipped_if_everything_is_required() -> None:
    """Tests skip by `lacking`; others are skipped by the size of the run only."""
    sources = {each: each.read_text(encoding="utf-8") for each in sorted(TESTS.rglob("*.py"))}
    by_hand = re.compile(r"pytest\.(skip|importorskip)\(|mark\.skip\b|skipif\(")

    assert [path for path, text in sources.items() if by_hand.search(text)] == [
        TESTS / "conftest.py",  # what only a long run does
        TESTS / "required.py",
    ]


def test_tests_without_a_requirement_skip_or_fail_if_everything_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BINDERY_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no GPU"):
        lacking("there is no GPU")

    monkeypatch.setenv("BINDERY_REQUIRE", "1")
    with pytest.raises(pytest.fail.Exception, match="there is no GPU"):
        lacking("there is no GPU")
