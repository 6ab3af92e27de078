"""The nodes of a scenario and the topology over them.

Read by `format`; `objects` makes Kubernetes nodes of them. Invariant: every key that may be
changed by an event has a default, so that an event can name any few of them.
"""

import re
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from bindery.api.base import NonNegative
from bindery.nodecore.cpusets import parse_cpus
from bindery.nodecore.prediction.arrays import MAX_ZONES
from bindery.scenario.fields import (
    MOST_DEVICES,
    Count,
    Name,
    Positive,
    Quantity,
    Repetitions,
    ScenarioModel,
    Texts,
)

_MOST_CPU_DIGITS: Final = 5


class Taint(ScenarioModel):
    """A taint as Kubernetes writes it."""

    key: Name
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class ScenarioDevice(ScenarioModel):
    """One GPU of a node in detail."""

    id: str = ""
    healthy: bool = True
    cordoned: bool = False
    memory: Positive | None = None
    """MiB."""
    numa: NonNegative | None = None
    type: str = ""
    shares: Annotated[int, Field(ge=1, le=MOST_DEVICES)] | None = None
    """The most pods that may share the device."""


def _check_cpus(value: object) -> str:
    text = str(value)
    if any(len(number) > _MOST_CPU_DIGITS for number in re.findall(r"\d+", text)):
        raise ValueError(f"{text} has too large a number")
    parse_cpus(text)
    return text


Cpus = Annotated[str, BeforeValidator(_check_cpus)]
"""A list of CPUs such as 0-3,8."""


class NumaZone(ScenarioModel):
    """A NUMA node of a machine."""

    cpus: Cpus = ""
    """Such as 0-3,8."""
    memory: Quantity = "0"
    gpus: tuple[NonNegative, ...] = ()
    """Devices of the node by index."""
    resources: dict[str, Quantity] = Field(default_factory=dict)
    """Huge pages, and devices of other kinds."""
    used: dict[str, Quantity] = Field(default_factory=dict)
    """Amounts in use without a pod of the scenario."""


class NodeNuma(ScenarioModel):
    """The policy of the node's topology manager, and its zones."""

    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    scope: Literal["container", "pod"] = "container"
    cpu_policy: Literal["none", "static"] = "static"
    memory_policy: Literal["None", "Static"] | None = None
    """Default: Static if a zone has memory."""
    late: Repetitions = 0
    """The delay of its reports, in cycles."""
    zones: Annotated[tuple[NumaZone, ...], Field(max_length=MAX_ZONES)] = ()

    @model_validator(mode="after")
    def _has_each_once(self) -> "NodeNuma":
        cpus = [cpu for zone in self.zones for cpu in parse_cpus(zone.cpus)]
        if len(cpus) != len(set(cpus)):
            raise ValueError("a CPU is in two zones")
        gpus = [gpu for zone in self.zones for gpu in zone.gpus]
        if len(gpus) != len(set(gpus)):
            raise ValueError("a GPU is in two zones")
        return self


class ScenarioNode(ScenarioModel):
    """A node, or `count` nodes with names that differ in `{i}`."""

    name: Name
    count: Annotated[Count, Field(ge=1)] = 1
    gpus: Annotated[int, Field(ge=0, le=MOST_DEVICES)] | None = None
    """Whole devices. Default: as many as `devices` lists."""
    gpu_memory: Positive | None = None
    """MiB a device; becomes the node's label."""
    gpu_model: str | None = None
    devices: tuple[ScenarioDevice, ...] = ()
    cpu: Quantity = "20"
    memory: Quantity = "20G"
    pods: NonNegative = 110
    resources: dict[str, Quantity] = Field(default_factory=dict)
    """Extended resources."""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    images: dict[str, Quantity] = Field(default_factory=dict)
    """The container images that it has, with their sizes."""
    declared_features: Texts = ()
    """The features of its kubelet that pods may need, as in `status.declaredFeatures`."""
    unschedulable: bool = False
    ready: bool = True
    numa: NodeNuma | None = None

    @property
    def gpu_count(self) -> int:
        """Number of whole devices of the node."""
        return len(self.devices) if self.gpus is None else self.gpus


class Topology(ScenarioModel):
    """A tree over the nodes by their labels, widest level first."""

    name: Name
    levels: tuple[Name, ...] = Field(min_length=1)


class HyperNode(ScenarioModel):
    """A domain that lists its members."""

    name: Name
    tier: NonNegative = 1
    members: tuple[str, ...] = ()
    """Names of nodes."""
    regexes: tuple[str, ...] = ()
    """Regular expressions for names of nodes."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of nodes, all of which must match."""
    children: tuple[str, ...] = ()
    """Names of HyperNodes."""
