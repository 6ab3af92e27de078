"""What users ask for in labels and annotations, of a pod or of any owner of it.

The nearest to the pod wins. In one object, our key comes before those of other schedulers, and an
annotation before a label. A value that means nothing is a problem at its object, and the search
goes on.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import durationpy

from bindery.api import names
from bindery.api.topology import HARD, SOFT
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import Problem, ProblemReason
from bindery.grouper.table.walk import Link

Value = TypeVar("Value")
_MOST_SHOWN: Final = 80
_MOST_NUMBER: Final = 1_000_000
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Setting(Generic[Value]):
    """One thing that can be asked for."""

    keys: tuple[str, ...]
    """Ours first, then those of others."""
    read: Callable[[str], Value]
    """Raises ValueError for a text that means nothing."""


@dataclass(frozen=True)
class Found(Generic[Value]):
    """A value and the object that gave it."""

    value: Value
    source: Reference
    """The object that gave it."""
    text: str = ""
    """The object, for people, if it is more than that."""

    def __str__(self) -> str:
        return self.text or str(self.source)


def _number(text: str, read: Callable[[str], Value], what: str) -> Value:
    """Return what `read` makes of `text`; its own errors are for programmers."""
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"it must be {what}") from error


def _duration(text: str) -> float:
    return float(durationpy.from_str(text).total_seconds())


def _count(text: str) -> int:
    number = _number(text, int, "a whole number")
    if not 0 <= number <= _MOST_NUMBER:
        raise ValueError(f"it must be from 0 to {_MOST_NUMBER}")
    return number


def _positive(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def _seconds(text: str) -> float:
    number = _number(text, float, "a number of seconds")
    if not 0 < number < float("inf"):
        raise ValueError("it must be a positive number of seconds")
    return number


def _span(text: str) -> float:
    """Return seconds; other schedulers write Go durations such as `1h30m`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _number(text, _duration, "a number of seconds, or a duration such as 1h30m")
    if not abs(seconds) < float("inf"):
        raise ValueError("it must be a number of seconds")
    return seconds


def _wait(text: str) -> float:
    seconds = _span(text)
    if seconds < 0:
        raise ValueError("it must not be negative")
    return seconds


def _disruption(text: str) -> Literal["Pod", "Group"]:
    if text == "Pod":
        return "Pod"
    if text == "Group":
        return "Group"
    raise ValueError("it must be Pod or Group")


def _label_value(text: str) -> str:
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueError("it is no value of a label: up to 63 letters, digits, -, _ and .")
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


_PREEMPTIBLE: Final = {
    "true": True,
    "false": False,
    "preemptible": True,
    "non-preemptible": False,
}


def _preemptible(text: str) -> bool:
    if text.lower() not in _PREEMPTIBLE:
        raise ValueError("it must be true or false")
    return _PREEMPTIBLE[text.lower()]


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text == "true"


def _mode(text: str) -> Literal["hard", "soft"]:
    if text == HARD:
        return "hard"
    if text == SOFT:
        return "soft"
    raise ValueError(f"it must be {HARD} or {SOFT}")


_KAI: Final = "kai.scheduler"
KAI_MIN_MEMBER: Final = f"{_KAI}/batch-min-member"
MIN_MEMBER: Final = Setting(
    (
        names.MIN_MEMBER_KEY,
        KAI_MIN_MEMBER,
        "scheduling.volcano.sh/group-min-member",
        "kueue.x-k8s.io/job-min-parallelism",
    ),
    _count,
)
MIN_MEMBER_OF_PODS: Final = Setting(
    tuple(key for key in MIN_MEMBER.keys if key != KAI_MIN_MEMBER), _count
)
"""For kinds of which KAI-Scheduler counts something else than pods."""
QUEUE: Final = Setting(names.QUEUE_KEYS, _name)
PRIORITY_CLASS: Final = Setting(
    (names.PRIORITY_CLASS_KEY, "priorityClassName", "ray.io/priority-class-name"), _name
)
PREEMPTIBLE: Final = Setting(
    (names.PREEMPTIBLE_ANNOTATION, f"{_KAI}/preemptibility", "volcano.sh/preemptable"),
    _preemptible,
)
RUN_TIME_LIMIT: Final = Setting((names.RUN_TIME_LIMIT_KEY,), _seconds)
PREEMPTION_DELAY: Final = Setting((names.PREEMPTION_DELAY_KEY, f"{_KAI}/preemption-delay"), _wait)
STALENESS_GRACE: Final = Setting(
    (names.STALENESS_GRACE_PERIOD_KEY, f"{_KAI}/staleness-grace-period"), _span
)
STAGE_TIMEOUT: Final = Setting((names.STAGE_TIMEOUT_KEY,), _wait)
DISRUPTION_MODE: Final = Setting((names.DISRUPTION_MODE_KEY,), _disruption)
RUNTIME: Final = Setting((names.EXPECTED_RUNTIME_ANNOTATION,), _seconds)
TOPOLOGY: Final = Setting((names.TOPOLOGY_KEY, f"{_KAI}/topology", "grove.io/topology-name"), _name)
TOPOLOGY_REQUIRED: Final = Setting(
    (
        names.TOPOLOGY_REQUIRED_KEY,
        f"{_KAI}/topology-required-placement",
        "kueue.x-k8s.io/podset-required-topology",
    ),
    _name,
)
TOPOLOGY_PREFERRED: Final = Setting(
    (
        names.TOPOLOGY_PREFERRED_KEY,
        f"{_KAI}/topology-preferred-placement",
        "kueue.x-k8s.io/podset-preferred-topology",
    ),
    _name,
)
SEGMENT_SIZE: Final = Setting(
    (names.SEGMENT_SIZE_KEY, f"{_KAI}/segment-size", "kueue.x-k8s.io/podset-slice-size"),
    _positive,
)
SEGMENT_REQUIRED: Final = Setting(
    (
        names.SEGMENT_REQUIRED_KEY,
        f"{_KAI}/segment-topology-required-placement",
        "kueue.x-k8s.io/podset-slice-required-topology",
    ),
    _name,
)
SEGMENT_PREFERRED: Final = Setting(
    (names.SEGMENT_PREFERRED_KEY, f"{_KAI}/segment-topology-preferred-placement"), _name
)
TIER: Final = Setting(("volcano.sh/network-topology-highest-tier",), _count)
"""The highest tier of HyperNodes."""
TIER_MODE: Final = Setting(("volcano.sh/network-topology-mode",), _mode)
NODE_POOL: Final = Setting((names.NODE_POOL_LABEL,), _name)
USER: Final = Setting((names.USER_KEY,), _label_value)
PROVISIONING: Final = Setting((names.PROVISIONING_REQUEST_ANNOTATION,), _truth)
_SKIP_KEYS: Final = (names.SKIP_GROUPER_KEY, f"{_KAI}/skip-podgrouper")


def is_skipped(link: Link) -> bool:
    """Return whether the grouper is to keep off the pods below `link`."""
    return any(_text(link, key) == "true" for key in _SKIP_KEYS)


def look_up(
    setting: Setting[Value], links: Iterable[Link], problems: set[Problem]
) -> Found[Value] | None:
    """Return the value of the first of `links` that has one."""
    for link in links:
        for key in setting.keys:
            text = _text(link, key)
            if text is None:
                continue
            try:
                return Found(setting.read(text), link.source, link.source_text)
            except ValueError as error:
                message = f"{key}: {text[:_MOST_SHOWN]!r} is ignored: {error}"
                problems.add(Problem(link.source, ProblemReason.INVALID_VALUE, message))
    return None


def provisioning_annotation(asked: Found[bool] | None) -> dict[str, str]:
    """Return the annotation by which a PodGroup asks for nodes as `asked`; none without it."""
    if asked is None:
        return {}
    return {names.PROVISIONING_REQUEST_ANNOTATION: str(asked.value).lower()}


def _text(link: Link, key: str) -> str | None:
    value = link.annotations.get(key, link.labels.get(key))
    return value if isinstance(value, str) else None
