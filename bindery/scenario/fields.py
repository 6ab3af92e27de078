"""The field types that the models of a scenario share.

Used by every model module of the package. Invariant: a value that passes validation needs no
further check: quantities parse, durations are seconds.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from bindery.api import quantity
from bindery.api.base import ApiModel

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h|d))")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


MOST_NODES: Final = 20_000
"""Maximum number of nodes of a scenario."""
MOST_PODS: Final = 200_000
"""Maximum number of pods of a scenario."""
MOST_ROUNDS: Final = 10_000
"""Maximum number of cycles that a scenario plays or waits for."""
MOST_DEVICES: Final = 1024
"""Maximum number of devices of a node, and of pods that share a device."""


class ScenarioModel(ApiModel):
    """Base of every part of a scenario: the file's camelCase keys and no others."""

    model_config = ConfigDict(populate_by_name=False)


def _quantity_text(value: object) -> object:
    """Return a number as its shortest text, so that 0.1 is one tenth exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value)


def _check_quantity(text: str) -> str:
    if quantity.parse(text, "cpu") < 0:
        raise ValueError(f"{text} is negative")
    return text


def _check_limit(text: str) -> str:
    return text if quantity.parse(text, "cpu") == -1000 else _check_quantity(text)


def parse_duration(value: object) -> float:
    """Return a duration such as `90s`, `1h30m` or `0s` in seconds; a bare number is seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value >= 0:
            return float(value)
    elif isinstance(value, str):
        parts = _DURATION.findall(value)
        if parts and "".join(number + unit for number, unit in parts) == value:
            return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    raise ValueError(f"{value!r} is not a duration; write it as 90s, 10m or 1h30m")


def _parse_grace(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value.startswith("-"):
        return -parse_duration(value[1:])
    return parse_duration(value)


def _as_sequence(value: object) -> object:
    is_many = isinstance(value, Sequence) and not isinstance(value, str)
    return value if is_many else (value,)


Quantity = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_check_quantity)]
"""A Kubernetes quantity of zero or more, as text."""
Limit = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_check_limit)]
"""A Kubernetes quantity, or -1 for unlimited, as text."""
Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, written as a duration."""
Grace = Annotated[float, BeforeValidator(_parse_grace)]
"""Seconds, written as a duration; a negative one stands for ever."""
Name = Annotated[str, Field(min_length=1)]
Positive = Annotated[int, Field(ge=1)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_as_sequence)]
"""One text or a list of them."""
AnyObject = dict[str, Any]
"""A whole Kubernetes object that this package does not look into."""


Count = Annotated[int, Field(ge=0, le=MOST_PODS)]
"""Number of equal entries."""
Repetitions = Annotated[int, Field(ge=0, le=MOST_ROUNDS)]


def expand(name: str, count: int) -> list[str]:
    """Return the `count` names that `name` stands for: `{i}` counts from 0."""
    return [name.replace("{i}", str(index)) for index in range(count)]
