"""The expected result of a scenario, and its comparison with the observed state.

`format` reads the models; only what is named in them is checked. `runner` compares after every
cycle and after every step. Pure; the failures are texts for people.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, cast

from pydantic import BeforeValidator, Field, PlainValidator

from bindery.api.base import NonNegative
from bindery.scenario.fields import ScenarioModel, Texts
from bindery.scenario.jobs import DeviceIndexes
from bindery.scenario.states import FINISHED, STATE_NAMES, PodState
from bindery.scenario.topology import Domains

_TOLERANCE: Final = 1e-6
"""Shares are compared to one part in a million."""


def _one_or_many(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


def _parse_states(value: object) -> tuple[PodState, ...]:
    texts = value if isinstance(value, list | tuple) else [value]
    unknown = [text for text in texts if text not in STATE_NAMES]
    if unknown:
        raise ValueError(f"{unknown[0]} is not a pod state; known: {', '.join(PodState)}")
    return tuple(PodState(str(text)) for text in texts)


def _parse_count(value: object) -> int | dict[str, int]:
    counts = value.values() if isinstance(value, dict) else (value,)
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError("a number of pods is expected, or numbers by state")
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else cast("int", value)


States = Annotated[tuple[PodState, ...], PlainValidator(_parse_states)]
Count = Annotated[int | dict[str, int], PlainValidator(_parse_count)]


class PodExpectation(ScenarioModel):
    """The expected state of one pod."""

    state: States | None = None
    node: Texts | None = None
    gpus: Annotated[tuple[NonNegative, ...], BeforeValidator(_one_or_many)] | None = None
    """Whole devices that it holds or asks for."""
    reason: str | None = None
    """A part of the message about why it waits."""
    gpu: DeviceIndexes | None = None
    """The devices that it holds, or is promised, by index on the node."""
    numa: tuple[NonNegative, ...] | None = None
    """The NUMA zones that it holds, or that the scheduler has predicted."""


class QueueExpectation(ScenarioModel):
    """The expected state of one queue: devices, cores and bytes by resource."""

    fair_share: dict[str, float] = Field(default_factory=dict)
    allocated: dict[str, float] = Field(default_factory=dict)


class Expectation(ScenarioModel):
    """The expected state of the whole cluster at one moment."""

    pods: dict[str, PodExpectation] = Field(default_factory=dict)
    counts: dict[str, Count] = Field(default_factory=dict)
    """Number of pods by state, or by job and state."""
    queues: dict[str, QueueExpectation] = Field(default_factory=dict)
    distinct_nodes: dict[str, NonNegative] = Field(default_factory=dict)
    same_domain: dict[str, str] = Field(default_factory=dict)
    domain_counts: dict[str, dict[str, tuple[NonNegative, ...]]] = Field(default_factory=dict)
    evictions: NonNegative | None = None
    bind_requests: NonNegative | None = None
    unchanged: bool | None = None


@dataclass(frozen=True)
class PodView:
    """One pod as it is observed."""

    job: str
    state: PodState
    node: str = ""
    gpus: int = 0
    reason: str = ""
    """Why it waits; empty when it does not."""
    gpu: tuple[str, ...] = ()
    """The devices that it holds or is promised, by index on its node."""
    numa: tuple[int, ...] = ()
    """The NUMA zones that it holds or is predicted to get."""


@dataclass(frozen=True)
class Observation:
    """The cluster at one moment."""

    pods: Mapping[str, PodView]
    allocated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By queue and resource: devices, cores, bytes."""
    fair_shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    bind_requests: int = 0
    evictions: int = 0
    actions: int = 0
    """All requests created, and evictions, since the beginning. Clearing away is none."""
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def compare(expect: Expectation, seen: Observation, domains: Domains | None = None) -> list[str]:
    """Return the parts of `expect` that do not hold; empty if all hold."""
    return [
        *(text for name, wanted in expect.pods.items() for text in _pod(name, wanted, seen)),
        *_counts(expect, seen),
        *_queues(expect, seen),
        *_spread(expect, seen, domains or Domains()),
        *_totals(expect, seen),
    ]


def _pod(name: str, wanted: PodExpectation, seen: Observation) -> Iterator[str]:
    pod = seen.pods.get(name)
    if pod is None:
        yield f"pod {name}: it does not exist"
        return
    because = f" ({pod.reason})" if pod.reason else ""
    if wanted.state is not None and pod.state not in wanted.state:
        yield f"pod {name}: state is {pod.state}, expected {_either(wanted.state)}{because}"
    if wanted.node is not None and pod.node not in wanted.node:
        yield f"pod {name}: node is {pod.node or 'none'}, expected {_either(wanted.node)}{because}"
    if wanted.gpus is not None and pod.gpus not in wanted.gpus:
        yield f"pod {name}: gpus is {pod.gpus}, expected {_either(wanted.gpus)}"
    if wanted.gpu is not None and sorted(pod.gpu) != sorted(wanted.gpu):
        yield f"pod {name}: devices are {list(pod.gpu)}, expected {list(wanted.gpu)}"
    if wanted.numa is not None and sorted(pod.numa) != sorted(wanted.numa):
        yield f"pod {name}: NUMA zones are {list(pod.numa)}, expected {list(wanted.numa)}"
    if wanted.reason is not None and wanted.reason not in pod.reason:
        yield f"pod {name}: reason is {pod.reason!r}, expected to contain {wanted.reason!r}"


def _counts(expect: Expectation, seen: Observation) -> Iterator[str]:
    overall = Counter(pod.state.value for pod in seen.pods.values())
    for key, wanted in expect.counts.items():
        if isinstance(wanted, int):
            if overall[key] != wanted:
                yield f"pods that are {key}: {overall[key]}, expected {wanted}"
            continue
        of_job = Counter(pod.state.value for pod in seen.pods.values() if pod.job == key)
        for state, count in wanted.items():
            if of_job[state] != count:
                yield f"pods of {key} that are {state}: {of_job[state]}, expected {count}"


def _queues(expect: Expectation, seen: Observation) -> Iterator[str]:
    for name, wanted in expect.queues.items():
        for what, amounts, actual_amounts in (
            ("fairShare", wanted.fair_share, seen.fair_shares.get(name, {})),
            ("allocated", wanted.allocated, seen.allocated.get(name, {})),
        ):
            for resource, amount in amounts.items():
                actual = actual_amounts.get(resource, 0.0)
                if abs(actual - amount) > _TOLERANCE * max(abs(amount), abs(actual)):
                    yield f"queue {name}: {what} {resource} is {actual:g}, expected {amount:g}"


def _spread(expect: Expectation, seen: Observation, domains: Domains) -> Iterator[str]:
    for job, count in expect.distinct_nodes.items():
        nodes = set(_nodes_of(job, seen))
        if len(nodes) != count:
            yield f"job {job}: on {len(nodes)} nodes, expected {count}"
    for job, level in expect.same_domain.items():
        found = _domains(job, level, seen, domains)
        if len(found) > 1:
            names = ", ".join(sorted("/".join(domain) for domain in found))
            yield f"job {job}: in {len(found)} domains of {level} ({names}), expected one"
    for job, levels in expect.domain_counts.items():
        for level, wanted in levels.items():
            counts = sorted(_domains(job, level, seen, domains).values(), reverse=True)
            if counts != list(wanted):
                yield f"job {job}: pods per {level} are {counts}, expected {list(wanted)}"


def _totals(expect: Expectation, seen: Observation) -> Iterator[str]:
    if expect.evictions is not None and seen.evictions != expect.evictions:
        yield f"evictions: {seen.evictions}, expected {expect.evictions}"
    if expect.bind_requests is not None and seen.bind_requests != expect.bind_requests:
        yield f"bindRequests: {seen.bind_requests}, expected {expect.bind_requests}"
    if expect.unchanged is not None and (seen.actions == 0) != expect.unchanged:
        wanted = "none" if expect.unchanged else "some"
        yield f"actions: {seen.actions}, expected {wanted}"


def _nodes_of(job: str, seen: Observation) -> Iterator[str]:
    """Yield the node of every pod of `job` that has one and is not finished."""
    for pod in seen.pods.values():
        if pod.job == job and pod.node and pod.state not in FINISHED:
            yield pod.node


def _domains(job: str, level: str, seen: Observation, domains: Domains) -> Counter[tuple[str, ...]]:
    """Return how many pods of `job` are in each domain of `level`, by its path from the top."""
    return Counter(
        domains.of(node, seen.node_labels.get(node, {}), level) for node in _nodes_of(job, seen)
    )


def _either(values: Sequence[object]) -> str:
    return " or ".join(str(value) for value in values)
