"""The CEL functions of Kubernetes for selectors: quantities and semantic versions.

The runtime has no opaque values, so both are maps with one key. No driver can produce such a map,
because attributes are scalars. Equal values are equal maps, so `==` works. Source: the libraries
kubernetes.quantity and kubernetes.Semver of k8s.io/apiserver 0.36.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from bindery.api.quantity import QuantityError, nano

_NANO: Final = 10**9
_INT64_MAX: Final = 2**63 - 1
_QUANTITY: Final = "kubernetes.Quantity"
_SEMVER: Final = "kubernetes.Semver"

CelMap = Mapping[str, str]
"""The CEL value of a quantity (in billionths) or of a version (without build metadata)."""

MAP: Final = cel.Type.Map(cel.Type.STRING, cel.Type.STRING)
"""The CEL type of quantities and versions."""

_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

PreRelease = tuple[tuple[bool, int, str], ...]


def quantity_value(text: str | float) -> CelMap:
    """Return the quantity `text` as a CEL value; raises QuantityError if it is none."""
    return {_QUANTITY: str(nano(text))}


def version_value(text: str) -> CelMap:
    """Return the semantic version `text` as a CEL value; raises ValueError if it is none."""
    if _VERSION.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return {_SEMVER: text.partition("+")[0]}


@lru_cache(maxsize=4096)
def _version_key(text: str) -> tuple[int, int, int, bool, PreRelease]:
    """Return a sort key by the precedence of semver.org 2.0.0, section 11."""
    match = _VERSION.fullmatch(text)
    assert match is not None, "only version_value makes versions"
    major, minor, patch, pre_release = match.groups()
    identifiers = (pre_release or "").split(".") if pre_release else []
    key = tuple((not i.isdigit(), int(i) if i.isdigit() else 0, i) for i in identifiers)
    return int(major), int(minor), int(patch), pre_release is None, key


def _normalized(text: str) -> str:
    """Return `text` with three numbers, without a leading v and without leading zeros."""
    parts = text.removeprefix("v").split(".", 2)
    parts = [re.sub(r"^0+(?=[0-9])", "", part) for part in parts]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise ValueError(f"{text!r} is too short for a pre-release or build metadata")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _nanos(value: CelMap) -> int:
    if _QUANTITY not in value:
        raise ValueError("no such overload: not a quantity")
    return int(value[_QUANTITY])


def _version(value: CelMap) -> tuple[int, int, int, bool, PreRelease]:
    if _SEMVER not in value:
        raise ValueError("no such overload: not a semantic version")
    return _version_key(value[_SEMVER])


def _compare(left: CelMap, right: CelMap) -> int:
    if _QUANTITY in left:
        a, b = _nanos(left), _nanos(right)
        return (a > b) - (a < b)
    c, d = _version(left), _version(right)
    return (c > d) - (c < d)


def _whole(value: CelMap) -> int:
    whole, rest = divmod(_nanos(value), _NANO)
    if rest or not -_INT64_MAX - 1 <= whole <= _INT64_MAX:
        raise ValueError("cannot convert value to integer")
    return whole


def _is(parse: Callable[..., object], *arguments: object) -> bool:
    try:
        parse(*arguments)
    except ValueError:  # QuantityError is one
        return False
    return True


def _semver(text: str, normalize: bool = False) -> CelMap:  # CEL calls it by position
    return version_value(_normalized(text) if normalize else text)


def _quantity(text: str) -> CelMap:
    try:
        return quantity_value(text)
    except QuantityError as error:
        raise ValueError(str(error)) from error


def _sum(left: CelMap, right: CelMap) -> CelMap:
    return {_QUANTITY: str(_nanos(left) + _nanos(right))}


def _shifted(left: CelMap, whole: int) -> CelMap:
    return {_QUANTITY: str(_nanos(left) + whole * _NANO)}


def declarations() -> list[cel.FunctionDecl]:
    """Return the functions for the CEL environment."""
    text, boolean, integer = cel.Type.STRING, cel.Type.BOOL, cel.Type.INT
    plain: list[tuple[str, Any, list[Any], Callable[..., object]]] = [
        ("quantity", MAP, [text], _quantity),
        ("isQuantity", boolean, [text], lambda value: _is(_quantity, value)),
        ("semver", MAP, [text], _semver),
        ("semver", MAP, [text, boolean], _semver),
        ("isSemver", boolean, [text], lambda value: _is(_semver, value)),
        ("isSemver", boolean, [text, boolean], lambda value, how: _is(_semver, value, how)),
    ]
    members: list[tuple[str, Any, list[Any], Callable[..., object]]] = [
        ("isGreaterThan", boolean, [MAP, MAP], lambda a, b: _compare(a, b) > 0),
        ("isLessThan", boolean, [MAP, MAP], lambda a, b: _compare(a, b) < 0),
        ("compareTo", integer, [MAP, MAP], _compare),
        ("sign", integer, [MAP], lambda a: (_nanos(a) > 0) - (_nanos(a) < 0)),
        ("add", MAP, [MAP, MAP], _sum),
        ("add", MAP, [MAP, integer], _shifted),
        ("sub", MAP, [MAP, MAP], lambda a, b: _shifted(_sum(a, {_QUANTITY: str(-_nanos(b))}), 0)),
        ("sub", MAP, [MAP, integer], lambda a, whole: _shifted(a, -whole)),
        ("isInteger", boolean, [MAP], lambda a: _is(_whole, a)),
        ("asInteger", integer, [MAP], _whole),
        ("asApproximateFloat", cel.Type.DOUBLE, [MAP], lambda a: _nanos(a) / _NANO),
        ("major", integer, [MAP], lambda a: _version(a)[0]),
        ("minor", integer, [MAP], lambda a: _version(a)[1]),
        ("patch", integer, [MAP], lambda a: _version(a)[2]),
    ]
    overloads: dict[str, list[cel.Overload]] = {}
    for is_member, table in ((False, plain), (True, members)):
        for name, result, parameters, function in table:
            same_name = overloads.setdefault(name, [])
            same_name.append(
                cel.Overload(
                    f"kubernetes_{name}_{len(same_name)}",
                    return_type=result,
                    parameters=parameters,
                    is_member=is_member,
                    impl=function,
                )
            )
    return [cel.FunctionDecl(name, overloads_of) for name, overloads_of in overloads.items()]
