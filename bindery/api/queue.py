"""Queue (cluster-scoped): a share of the cluster that teams submit gangs to."""

from typing import ClassVar, Final, Literal

from pydantic import Field

from bindery.api.base import ApiModel, Condition, CustomResource, Kind, PrinterColumn, Quantity

READY: Final = "Ready"
"""The Queue condition that is False while its spec cannot be used, with the reason."""

UNLIMITED: Final = -1


class QueueResource(ApiModel):
    """The queue's rules for one resource."""

    limit: Quantity = UNLIMITED
    """The most that the queue and all below it may hold at once; -1 is unlimited."""


class QueueSpec(ApiModel):
    """What an administrator grants."""

    parent: str | None = None
    """The queue above; its limits hold for this queue too. Unset: directly under the root."""
    priority: int = 100
    """Queues with a higher priority are served first."""
    state: Literal["Open", "Closed"] = "Open"
    """A closed queue takes nothing new; what runs goes on."""
    resources: dict[str, QueueResource] = Field(default_factory=dict)
    """By resource: `cpu`, `memory`, `gpu` (short for nvidia.com/gpu), or any other name."""


class QueueStatus(ApiModel):
    """What the scheduler found."""

    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class Queue(CustomResource):
    """A queue of gangs with limits."""

    kind_info: ClassVar[Kind] = Kind(
        kind="Queue",
        plural="queues",
        short_names=("bq",),
        namespaced=False,
        columns=(
            PrinterColumn(name="Parent", json_path=".spec.parent"),
            PrinterColumn(name="Priority", type="integer", json_path=".spec.priority"),
            PrinterColumn(name="GPU limit", json_path=".spec.resources.gpu.limit"),
            PrinterColumn(name="State", json_path=".spec.state"),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None
