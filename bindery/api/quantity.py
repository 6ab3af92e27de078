"""Kubernetes quantities as exact integers.

Bindery computes with 64-bit integers in one unit for each resource, so that undoing an operation
restores a ledger exactly. The grammar is that of Kubernetes (apimachinery `resource.Quantity`).
"""

import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import Final

from bindery.api.shown import quoted

_INT64_MAX: Final = 2**63 - 1

_NANO: Final = 10**9
_EXACT_DIGITS: Final = 60
"""More digits than any quantity stored by Kubernetes; the default context rounds at 28."""

_UNITS_OF_ONE: Final = frozenset({"memory", "ephemeral-storage", "storage", "pods"})
"""Resources counted in their base unit (bytes, pods); all others are counted in thousandths."""

_GRAMMAR: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|(?P<exponent>[eE][+-]?[0-9]+))?"
)

_FACTORS: Final = {
    **{suffix: Decimal(10) ** -power for suffix, power in zip("mun", (3, 6, 9), strict=True)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity, or its value does not fit 64 bits."""


def scale(resource: str) -> int:
    """Return the number of Bindery's integer units in one unit of `resource`.

    1 for bytes and pods; 1000 for cores, devices and all other resources.
    """
    return 1 if resource in _UNITS_OF_ONE or resource.startswith("hugepages-") else 1000


@lru_cache(maxsize=65536)
def parse(text: str | float, resource: str) -> int:
    """Return the quantity `text` of `resource` in Bindery's integer units, rounded up.

    Raises:
        QuantityError: `text` is no quantity or is out of range.
    """
    try:
        value = _decimal(text) * scale(resource)
        amount = int(value.to_integral_value(rounding=ROUND_CEILING))
    except (ValueError, ArithmeticError, TypeError) as error:
        raise QuantityError(f"{quoted(text)} is not a Kubernetes quantity") from error
    if abs(amount) > _INT64_MAX:
        raise QuantityError(f"{quoted(text)} is out of range for {resource}")
    return amount


@lru_cache(maxsize=65536)
def nano(text: str | float) -> int:
    """Return the quantity `text` in billionths, rounded up: exact, of any size, of any resource.

    Raises:
        QuantityError: `text` is no quantity.
    """
    try:
        with localcontext(prec=_EXACT_DIGITS):
            return int((_decimal(text) * _NANO).to_integral_value(rounding=ROUND_CEILING))
    except (ValueError, ArithmeticError, TypeError) as error:
        raise QuantityError(f"{quoted(text)} is not a Kubernetes quantity") from error


def _decimal(text: str | float) -> Decimal:
    """Return the value of the quantity `text`, with the precision of the decimal context.

    Raises:
        ValueError: `text` does not fit the grammar.
    """
    if not isinstance(text, str):
        return Decimal(text)
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number, suffix, exponent = match.group("number", "suffix", "exponent")
    if suffix is None:
        return Decimal(number + (exponent or ""))
    return Decimal(number) * _FACTORS[suffix]


def nano_text(amount: int) -> str:
    """Return `amount`, in billionths, exactly, in the short form of Kubernetes."""
    whole, rest = divmod(amount, _NANO)
    if rest:
        for suffix, factor in (("m", 10**6), ("u", 10**3), ("n", 1)):
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
    return canonical(whole, "storage")


def display(amount: int, resource: str) -> str:
    """Return `amount` (integer units) in a readable form: `3.5`, `7.5Gi`, `8`."""
    if resource == "pods":
        return str(amount)
    if scale(resource) == 1:
        for suffix, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if abs(amount) >= factor:
                return f"{_trim(Decimal(amount) / factor, 2)}{suffix}"
        return str(amount)
    return _trim(Decimal(amount) / 1000, 3)


def canonical(amount: int, resource: str) -> str:
    """Return `amount` (integer units) exactly, in the form of Kubernetes: `3500m`, `64Gi`."""
    if scale(resource) != 1:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and resource != "pods":
        for suffix, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
    return str(amount)


def _trim(value: Decimal, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
