"""Taints and tolerations of nodes and of devices (KEP-5055), with one rule for both.

Used by the scheduler's plugins, which select the effects that count.
"""

import re
from collections.abc import Iterable
from typing import Final, Protocol

_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_MOST: Final = 2**63
"""Numbers of taints are 64-bit integers."""


class _Taint(Protocol):
    """A taint of a node or of a device, and its effect on pods without a toleration."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


class _Toleration(_Taint, Protocol):
    """A toleration of a pod or of a device request.

    An empty key or effect is any. The value of Gt and Lt (KEP-5471) is a number.
    """

    @property
    def operator(self) -> str: ...


def tolerates(tolerations: Iterable[_Toleration], taint: _Taint) -> bool:
    """Return whether one of `tolerations` covers `taint`."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: _Toleration, taint: _Taint) -> bool:
    """Return whether `toleration` covers `taint` (`v1.Toleration.ToleratesTaint`)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Gt", "Lt"):
        return _compares(taint.value, toleration.operator, toleration.value)
    is_equal = toleration.operator in ("", "Equal")
    # Without a key only Exists is valid.
    return is_equal and bool(toleration.key) and toleration.value == taint.value


def _compares(value: str, operator: str, bound: str) -> bool:
    """Return whether a taint's number is above (Gt) or below (Lt) the toleration's number."""
    if not _DECIMAL.fullmatch(value) or not _DECIMAL.fullmatch(bound):
        return False
    number, limit = int(value), int(bound)
    if not all(-_MOST <= each < _MOST for each in (number, limit)):
        return False
    return number > limit if operator == "Gt" else number < limit
