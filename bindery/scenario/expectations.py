"""The expected result of a scenario, as the file has it.

Read by `format`; `expect` compares. Only what is named is checked.
"""

from typing import Annotated, cast

from pydantic import BeforeValidator, Field, PlainValidator

from bindery.api.base import NonNegative
from bindery.scenario.fields import ScenarioModel, Texts
from bindery.scenario.jobs import DeviceIndexes
from bindery.scenario.states import STATE_NAMES, PodState


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
    """How many pods are in a state: by state, or by job and state."""
    queues: dict[str, QueueExpectation] = Field(default_factory=dict)
    distinct_nodes: dict[str, NonNegative] = Field(default_factory=dict)
    same_domain: dict[str, str] = Field(default_factory=dict)
    domain_counts: dict[str, dict[str, tuple[NonNegative, ...]]] = Field(default_factory=dict)
    evictions: NonNegative | None = None
    bind_requests: NonNegative | None = None
    unchanged: bool | None = None
