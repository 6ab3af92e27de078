"""What users ask for in labels and annotations, of a pod or of any owner of it.

The nearest to the pod wins. In one object, our key comes before those of other schedulers, and an
annotation before a label. A value that means nothing is a problem at its object, and the search
goes on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from bindery.api import names, podvalues
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import ProblemReason
from bindery.grouper.table.steps import Notes, Step
from bindery.grouper.table.walk import Link

Value = TypeVar("Value")
_MOST_SHOWN: Final = 80


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


_KAI: Final = "kai.scheduler"
KAI_MIN_MEMBER: Final = f"{_KAI}/batch-min-member"
MIN_MEMBER: Final = Setting(
    (
        names.MIN_MEMBER_KEY,
        KAI_MIN_MEMBER,
        "scheduling.volcano.sh/group-min-member",
        "kueue.x-k8s.io/job-min-parallelism",
    ),
    podvalues.count,
)
MIN_MEMBER_OF_PODS: Final = Setting(
    tuple(key for key in MIN_MEMBER.keys if key != KAI_MIN_MEMBER), podvalues.count
)
"""For kinds of which KAI-Scheduler counts something else than pods."""
QUEUE: Final = Setting(names.QUEUE_KEYS, podvalues.name)
PRIORITY_CLASS: Final = Setting(
    (
        names.PRIORITY_CLASS_KEY,
        "priorityClassName",
        "ray.io/priority-class-name",
        "kueue.x-k8s.io/priority-class",
    ),
    podvalues.name,
)
OWN_PRIORITY_CLASS: Final = Setting((names.PRIORITY_CLASS_KEY,), podvalues.name)
"""By our key alone."""
PREEMPTIBLE: Final = Setting(
    (names.PREEMPTIBLE_ANNOTATION, f"{_KAI}/preemptibility", "volcano.sh/preemptable"),
    podvalues.preemptible,
)
RUN_TIME_LIMIT: Final = Setting((names.RUN_TIME_LIMIT_KEY,), podvalues.seconds)
PREEMPTION_DELAY: Final = Setting(
    (names.PREEMPTION_DELAY_KEY, f"{_KAI}/preemption-delay"), podvalues.wait
)
STALENESS_GRACE: Final = Setting(
    (names.STALENESS_GRACE_PERIOD_KEY, f"{_KAI}/staleness-grace-period"), podvalues.span
)
STAGE_TIMEOUT: Final = Setting((names.STAGE_TIMEOUT_KEY,), podvalues.wait)
DISRUPTION_MODE: Final = Setting((names.DISRUPTION_MODE_KEY,), podvalues.disruption)
RUNTIME: Final = Setting((names.EXPECTED_RUNTIME_ANNOTATION,), podvalues.seconds)
TOPOLOGY: Final = Setting(
    (names.TOPOLOGY_KEY, f"{_KAI}/topology", "grove.io/topology-name"), podvalues.name
)
TOPOLOGY_REQUIRED: Final = Setting(
    (
        names.TOPOLOGY_REQUIRED_KEY,
        f"{_KAI}/topology-required-placement",
        "kueue.x-k8s.io/podset-required-topology",
    ),
    podvalues.name,
)
TOPOLOGY_PREFERRED: Final = Setting(
    (
        names.TOPOLOGY_PREFERRED_KEY,
        f"{_KAI}/topology-preferred-placement",
        "kueue.x-k8s.io/podset-preferred-topology",
    ),
    podvalues.name,
)
SEGMENT_SIZE: Final = Setting(
    (names.SEGMENT_SIZE_KEY, f"{_KAI}/segment-size", "kueue.x-k8s.io/podset-slice-size"),
    podvalues.positive,
)
SEGMENT_REQUIRED: Final = Setting(
    (
        names.SEGMENT_REQUIRED_KEY,
        f"{_KAI}/segment-topology-required-placement",
        "kueue.x-k8s.io/podset-slice-required-topology",
    ),
    podvalues.name,
)
SEGMENT_PREFERRED: Final = Setting(
    (names.SEGMENT_PREFERRED_KEY, f"{_KAI}/segment-topology-preferred-placement"), podvalues.name
)
TIER: Final = Setting(("volcano.sh/network-topology-highest-tier",), podvalues.count)
"""The highest tier of HyperNodes."""
TIER_MODE: Final = Setting(("volcano.sh/network-topology-mode",), podvalues.mode)
NODE_POOL: Final = Setting((names.NODE_POOL_LABEL,), podvalues.name)
USER: Final = Setting((names.USER_KEY,), podvalues.label_value)
PROVISIONING: Final = Setting((names.PROVISIONING_REQUEST_ANNOTATION,), podvalues.truth)
_SKIP_KEYS: Final = (names.SKIP_GROUPER_KEY, f"{_KAI}/skip-podgrouper")


def is_skipped(link: Link) -> bool:
    """Return whether the grouper is to keep off the pods below `link`."""
    return any(_text(link, key) == "true" for key in _SKIP_KEYS)


def look_up(setting: Setting[Value], links: Iterable[Link]) -> Step[Found[Value] | None]:
    """Return the value of the first of `links` that has one."""
    notes = Notes()
    for link in links:
        for key in setting.keys:
            text = _text(link, key)
            if text is None:
                continue
            try:
                return notes.step(Found(setting.read(text), link.source, link.source_text))
            except ValueError as error:
                message = f"{key}: {text[:_MOST_SHOWN]!r} is ignored: {error}"
                notes.add(link.source, ProblemReason.INVALID_VALUE, message)
    return notes.step(None)


def node_pool(links: Sequence[Link]) -> Step[Found[str] | None]:
    """Return the pool by the label of the pod or its template, by which schedulers choose pods.

    The PodGroup must be in the pool of its pods, so labels of other objects do not count.
    """
    # The pod need not be the first: links of its part alone come before those of all parts.
    own = [replace(each, annotations={}) for each in links if each.is_pod or each.is_template]
    notes = Notes()
    chosen = notes.take(look_up(NODE_POOL, own[:1]))
    for link in links:
        given = notes.take(look_up(NODE_POOL, (link,)))
        if given is not None and (chosen is None or given.value != chosen.value):
            message = (
                f"{names.NODE_POOL_LABEL}: {given.value!r} is ignored: "
                "it must be a label of the pod template"
            )
            notes.add(given.source, ProblemReason.INVALID_VALUE, message)
    return notes.step(chosen)


def provisioning_annotation(asked: Found[bool] | None) -> dict[str, str]:
    """Return the annotation by which a PodGroup asks for nodes as `asked`; none without it."""
    if asked is None:
        return {}
    return {names.PROVISIONING_REQUEST_ANNOTATION: str(asked.value).lower()}


def _text(link: Link, key: str) -> str | None:
    value = link.annotations.get(key, link.labels.get(key))
    return value if isinstance(value, str) else None
