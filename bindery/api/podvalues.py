"""Reads the values that users write for keys of pods and workloads, and finds their problems.

Used by the grouper and by the admission webhook, so that both accept the same values. All readers
raise ValueError for an invalid text. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

import durationpy

from bindery.api import names, times
from bindery.api.states import HARD, MOST_GANG_PODS, SOFT

Value = TypeVar("Value")
_MOST_SHOWN: Final = 80


def _number(text: str, read: Callable[[str], Value], expected: str) -> Value:
    """Return the result of `read` for `text`, with an error message for users."""
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"it must be {expected}") from error


def _duration(text: str) -> float:
    return float(durationpy.from_str(text).total_seconds())


def count(text: str) -> int:
    """Return a whole number."""
    number = _number(text, int, "a whole number")
    if not 0 <= number <= MOST_GANG_PODS:
        raise ValueError(f"it must be from 0 to {MOST_GANG_PODS}")
    return number


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    number = count(text)
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def seconds(text: str) -> float:
    """Return a positive number of seconds."""
    number = _number(text, float, "a number of seconds")
    if not 0 < number < float("inf"):
        raise ValueError("it must be a positive number of seconds")
    return number


def span(text: str) -> float:
    """Return seconds; also reads Go durations such as `1h30m`, which other schedulers use."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _number(text, _duration, "a number of seconds, or a duration such as 1h30m")
    if not abs(seconds) < float("inf"):
        raise ValueError("it must be a number of seconds")
    return seconds


def wait(text: str) -> float:
    """Return seconds that are not negative."""
    seconds = span(text)
    if seconds < 0:
        raise ValueError("it must not be negative")
    return seconds


def disruption(text: str) -> Literal["Pod", "Group"]:
    """Return a disruption mode."""
    if text == "Pod":
        return "Pod"
    if text == "Group":
        return "Group"
    raise ValueError("it must be Pod or Group")


def label_value(text: str) -> str:
    """Return a value of a label."""
    if not names.LABEL_VALUE.fullmatch(text):
        raise ValueError("it is no value of a label: up to 63 letters, digits, -, _ and .")
    return text


def name(text: str) -> str:
    """Return a name without surrounding spaces."""
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def object_name(text: str) -> str:
    """Return a name that an object can have."""
    problem = names.name_problem(text)
    if problem:
        raise ValueError(problem)
    return text


def time(text: str) -> float:
    """Return a time in seconds since the epoch."""
    found = times.seconds(text)
    if found is None:
        raise ValueError("it must be a time such as 2026-01-01T00:00:00Z")
    return found


_PREEMPTIBLE: Final = {"true": True, "false": False, "preemptible": True, "non-preemptible": False}


def preemptible(text: str) -> bool:
    """Return whether pods shall be preemptible."""
    if text.lower() not in _PREEMPTIBLE:
        raise ValueError("it must be true or false")
    return _PREEMPTIBLE[text.lower()]


def truth(text: str) -> bool:
    """Return a boolean."""
    if text not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text == "true"


def mode(text: str) -> Literal["hard", "soft"]:
    """Return the mode of a HyperNode constraint."""
    if text == HARD:
        return "hard"
    if text == SOFT:
        return "soft"
    raise ValueError(f"it must be {HARD} or {SOFT}")


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    names.MIN_MEMBER_KEY: count,
    names.PREEMPTIBLE_ANNOTATION: preemptible,
    names.EXPECTED_RUNTIME_ANNOTATION: seconds,
    names.RUN_TIME_LIMIT_KEY: seconds,
    names.PREEMPTION_DELAY_KEY: wait,
    names.STALENESS_GRACE_PERIOD_KEY: span,
    names.STAGE_TIMEOUT_KEY: wait,
    names.DISRUPTION_MODE_KEY: disruption,
    names.SEGMENT_SIZE_KEY: positive,
    names.USER_KEY: label_value,
    names.PROVISIONING_REQUEST_ANNOTATION: truth,
    names.POD_GROUP_ANNOTATION: object_name,
    names.SKIP_GROUPER_KEY: truth,
    names.ENABLED_LABEL: truth,
    names.DO_NOT_DISRUPT_ANNOTATION: truth,
    names.SPREAD_DEVICES_ANNOTATION: truth,
    names.LAST_CHECKPOINT_ANNOTATION: time,
}
"""Bindery's keys with values that can be invalid."""


def wrong_values(*keys: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the values in annotations or labels, one sentence each."""
    for each in keys:
        for key, text in sorted(each.items()):
            reader = _READERS.get(key)
            if reader is None or not isinstance(text, str):
                continue
            try:
                reader(text)
            except ValueError as error:
                yield f"{key}: {text[:_MOST_SHOWN]!r} means nothing: {error}"
