"""The queues of a scenario.

Read by `format`; `objects` makes Queue resources of them. The keys are the fields of a Queue, but
for the rules of resources, which have short forms here. Each kind of resource has a model of its
own, because what an unset quota and weight mean differs.
"""

from typing import Annotated

from pydantic import Field

from bindery.kube.objects.queues import QueueSpec
from bindery.scenario.declared import Declared, keys_of
from bindery.scenario.fields import Limit, Name, ScenarioModel

UNLIMITED = "-1"

Weight = Annotated[float, Field(ge=0)]
Usage = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Share(ScenarioModel):
    """The queue's rules for cores, memory or any other resource."""

    quota: Limit = UNLIMITED
    weight: Weight = 1.0
    limit: Limit = UNLIMITED


class GpuShare(Share):
    """The queue's rules for GPUs; without quota and weight, a queue has no share of its own."""

    quota: Limit = "0"
    weight: Weight = 0.0


class ModelShare(Share):
    """The queue's rules for GPUs of one model, beside those for all GPUs."""

    weight: Weight = 0.0


@keys_of(QueueSpec)
class ScenarioQueue(Declared):
    """A queue. One without a parent hangs under the unlimited root."""

    name: Name
    gpu: GpuShare = GpuShare()
    cpu: Share = Share()
    memory: Share = Share()
    usage: dict[str, Usage] = Field(default_factory=dict)
    """Past usage by resource, as a part of capacity."""
    resources: dict[str, Share] = Field(default_factory=dict)
    models: dict[str, ModelShare] = Field(default_factory=dict)

    def shares(self) -> dict[str, Share]:
        """Return the rules by resource name."""
        return {"gpu": self.gpu, "cpu": self.cpu, "memory": self.memory, **self.resources}
