"""Text of unknown origin is cut and escaped before people see it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.shown import MOST_QUOTED, MOST_SHOWN, quoted, shown, shown_message


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain text, ümlaut, 調度, 🙂 …", "plain text, ümlaut, 調度, 🙂 …"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\U000e0001", "\\U000e0001"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_characters_that_control_a_terminal_are_escaped(text: str, safe: str) -> None:
    assert shown(text) == safe


def test_long_text_is_cut_with_a_mark() -> None:
    assert shown("x" * 100_000) == "x" * (MOST_SHOWN - 1) + "…"
    assert shown("\x1b" * 1_000, 10) == "\\x1b\\x1b\\…"
    assert shown("x" * MOST_SHOWN) == "x" * MOST_SHOWN


def test_a_long_name_does_not_hide_the_rest_of_a_message() -> None:
    name = "x" * 100_000

    told = shown_message(f"PriorityClass {name} does not exist")

    assert told == f"PriorityClass {'x' * MOST_QUOTED}… does not exist"
    assert shown_message(f"queue {name[:MOST_QUOTED]} is closed").endswith("x is closed")
    assert quoted(name) == f"'{'x' * MOST_QUOTED}…'"
    assert quoted("a b") == "'a b'"


def test_line_breaks_can_be_kept() -> None:
    assert shown("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(text=st.text(), most=st.integers(1, 40))
def test_the_outcome_is_short_and_has_no_unsafe_character(text: str, most: int) -> None:
    safe = shown(text, most)

    assert len(safe) <= most
    assert not {unicodedata.category(c) for c in safe} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
