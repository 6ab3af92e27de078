"""The queues of a scenario.

Read by `format`; `objects` makes Queue resources of them. Each kind of resource has a model of its
own, because what an unset quota and weight mean differs.
"""

from typing import Annotated, Literal

from pydantic import Field

from bindery.api.queue import FairUsers, NamespaceRule
from bindery.scenario.fields import Duration, Limit, Name, ScenarioModel

UNLIMITED = "-1"

Weight = Annotated[float, Field(ge=0)]
Usage = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class GpuShare(ScenarioModel):
    """The queue's rules for GPUs; without quota and weight, a queue has no share of its own."""

    quota: Limit = "0"
    weight: Weight = 0.0
    limit: Limit = UNLIMITED


class Share(ScenarioModel):
    """The queue's rules for cores, memory or any other resource."""

    quota: Limit = UNLIMITED
    weight: Weight = 1.0
    limit: Limit = UNLIMITED


class ModelShare(ScenarioModel):
    """The queue's rules for GPUs of one model, beside those for all GPUs."""

    quota: Limit = UNLIMITED
    weight: Weight = 0.0
    limit: Limit = UNLIMITED


class ScenarioQueue(ScenarioModel):
    """A queue. One without a parent hangs under the unlimited root."""

    name: Name
    parent: str | None = None
    priority: int = 100
    gpu: GpuShare = GpuShare()
    cpu: Share = Share()
    memory: Share = Share()
    preempt_min_runtime: Duration | None = None
    """Default: that of the queue above, and 0 s at the top."""
    reclaim_min_runtime: Duration | None = None
    usage: dict[str, Usage] = Field(default_factory=dict)
    """Past usage by resource, as a part of capacity."""
    resources: dict[str, Share] = Field(default_factory=dict)
    models: dict[str, ModelShare] = Field(default_factory=dict)
    reclaimable: bool = True
    state: Literal["Open", "Closed"] = "Open"
    max_run_time: Duration | None = None
    """How long its jobs may run; default: without end."""
    namespaces: NamespaceRule | None = None
    """The namespaces that may use it; default: all."""
    priority_classes: dict[str, NamespaceRule] = Field(default_factory=dict)
    """By PriorityClass: the namespaces that may use it here."""
    non_preemptible: NamespaceRule | None = None
    """The namespaces that may have non-preemptible pods here; default: all."""
    fair_users: FairUsers | None = None
    """The label of the users that take turns; default: they do not."""

    def shares(self) -> dict[str, GpuShare | Share]:
        """Return the rules by resource name."""
        return {"gpu": self.gpu, "cpu": self.cpu, "memory": self.memory, **self.resources}
