"""Quantities: Kubernetes' grammar, exact integers, and the form shown to people."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.quantity import QuantityError, display, parse


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        ("1", "cpu", 1000),
        ("1500m", "cpu", 1500),
        ("0.1", "cpu", 100),
        (".5", "cpu", 500),
        ("5.", "cpu", 5000),
        ("+2", "cpu", 2000),
        ("1n", "cpu", 1),
        ("100u", "cpu", 1),
        ("1k", "cpu", 1_000_000),
        ("1e3", "cpu", 1_000_000),
        ("1E3", "cpu", 1_000_000),
        ("15e-1", "cpu", 1500),
        (8, "cpu", 8000),
        (0.5, "cpu", 500),
        ("-1", "cpu", -1000),
        ("0", "memory", 0),
        ("64Gi", "memory", 64 * 2**30),
        ("1.5Ki", "memory", 1536),
        ("1G", "memory", 10**9),
        ("1E", "memory", 10**18),
        ("7Ei", "memory", 7 * 2**60),
        ("1500m", "memory", 2),
        ("110", "pods", 110),
        ("2Mi", "hugepages-2Mi", 2 * 2**20),
        ("2", "nvidia.com/gpu", 2000),
        ("9223372036854775807", "memory", 2**63 - 1),
    ],
)
def test_a_quantity_is_read(text: str | float, resource: str, amount: int) -> None:
    assert parse(text, resource) == amount


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", " 1", "1\n", "m", "Gi", ".", "+", "one", "NaN", "Infinity"),
        *("1_000", "\N{FULLWIDTH DIGIT ONE}", "0x10", "--1", "1.2.3", "1,5"),
        *("1e", "1ki", "1mi", "1KI", "1Gi1", "1e3Ki"),
    ],
)
def test_an_invalid_quantity_is_an_error_that_shows_the_text(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text, "memory")

    assert str(caught.value) == f"{text!r} is not a Kubernetes quantity"


@pytest.mark.parametrize(
    ("text", "resource"),
    [("8Ei", "memory"), ("9223372036854775807", "cpu"), ("1e400", "cpu"), ("-8.1Ei", "memory")],
)
def test_a_quantity_beyond_64_bits_is_an_error(text: str, resource: str) -> None:
    with pytest.raises(QuantityError):
        parse(text, resource)


SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "Ki": Fraction(2**10), "Gi": Fraction(2**30),
}  # fmt: skip


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_a_quantity_is_rounded_up_to_an_integer(whole: int, part: int, suffix: str) -> None:
    exact = (whole + Fraction(part, 1000)) * SUFFIXES[suffix]

    assert parse(f"{whole}.{part:03d}{suffix}", "memory") == -(-exact // 1)
    assert parse(f"{whole}.{part:03d}{suffix}", "cpu") == -(-(exact * 1000) // 1)


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (3500, "cpu", "3.5"),
        (82_700, "cpu", "82.7"),
        (5, "cpu", "0.005"),
        (125, "nvidia.com/gpu", "0.125"),
        (4000, "cpu", "4"),
        (0, "cpu", "0"),
        (8 * 2**30, "memory", "8Gi"),
        (15 * 2**29, "memory", "7.5Gi"),
        (1000, "memory", "1000"),
        (3 * 2**40, "memory", "3Ti"),
        (2000, "nvidia.com/gpu", "2"),
        (500, "nvidia.com/gpu", "0.5"),
        (110, "pods", "110"),
        (-2000, "cpu", "-2"),
    ],
)
def test_an_amount_is_shown_with_readable_units(amount: int, resource: str, text: str) -> None:
    assert display(amount, resource) == text


@given(st.integers(0, 10**9), st.sampled_from(["cpu", "pods"]))
def test_a_shown_amount_parses_to_the_same_amount(amount: int, resource: str) -> None:
    assert parse(display(amount, resource), resource) == amount
