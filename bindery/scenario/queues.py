"""The queues of a scenario.

Read by `format`; `objects` makes Queue resources of them. Each kind of resource has a model of its
own, because what an unset quota and weight mean differs.
"""

from typing import Annotated, Literal

from pydantic import Field

from bindery.api.names import GPU_RESOURCE
from bindery.scenario.fields import Duration, Limit, Name, NotYet, Quantity, ScenarioModel

UNLIMITED = "-1"


class GpuShare(ScenarioModel):
    """The queue's rules for GPUs; without quota and weight, a queue has no share of its own."""

    quota: Annotated[Limit, NotYet()] = "0"
    weight: Annotated[Quantity, NotYet()] = "0"
    limit: Limit = UNLIMITED


class Share(ScenarioModel):
    """The queue's rules for cores or memory."""

    quota: Annotated[Limit, NotYet()] = UNLIMITED
    weight: Annotated[Quantity, NotYet()] = "1"
    limit: Limit = UNLIMITED


class OtherShare(ScenarioModel):
    """The queue's rules for any other resource."""

    quota: Annotated[Limit, NotYet(neutral=("0",))] = UNLIMITED
    weight: Annotated[Quantity, NotYet(neutral=("0",))] = "1"
    limit: Limit = UNLIMITED


class ScenarioQueue(ScenarioModel):
    """A queue. One without a parent hangs under the unlimited root."""

    name: Name
    parent: str | None = None
    priority: int = 100
    gpu: GpuShare = GpuShare()
    cpu: Share = Share()
    memory: Share = Share()
    preempt_min_runtime: Annotated[Duration, NotYet()] = 0.0
    reclaim_min_runtime: Annotated[Duration, NotYet()] = 0.0
    usage: Annotated[dict[str, float], NotYet()] = Field(default_factory=dict)
    resources: dict[str, OtherShare] = Field(default_factory=dict)
    models: Annotated[dict[str, GpuShare], NotYet()] = Field(default_factory=dict)
    reclaimable: Annotated[bool, NotYet()] = True
    state: Literal["Open", "Closed"] = "Open"

    def limits(self) -> dict[str, str]:
        """Return the limits that hold, by resource name."""
        limits = {resource: share.limit for resource, share in self.resources.items()}
        limits |= {"cpu": self.cpu.limit, "memory": self.memory.limit}
        limits[GPU_RESOURCE] = self.gpu.limit
        return {resource: limit for resource, limit in limits.items() if limit != UNLIMITED}
