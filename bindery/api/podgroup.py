"""PodGroup (`pg`): the pods that are placed together, whole or not at all."""

from typing import ClassVar, Final, Literal

from pydantic import Field

from bindery.api.base import ApiModel, Condition, CustomResource, Kind, NonNegative, PrinterColumn
from bindery.api.states import INVALID, MOST_SUB_GROUPS, SCHEDULED, GangState
from bindery.api.topology import TopologyConstraint

__all__ = ["INVALID", "SCHEDULED"]

MOST_ROLES: Final = 1_000
"""How many roles a PodGroup may name."""


class SubGroup(ApiModel):
    """A part of a gang. Leaves hold pods and say `minMember`; inner ones say `minSubGroup`."""

    name: str = Field(min_length=1)
    parent: str | None = None
    """The sub-group above; unset: directly under the PodGroup."""
    min_member: NonNegative | None = None
    """How many pods of this sub-group must be placed together. Default: all of them."""
    min_sub_group: NonNegative | None = None
    """How many of the sub-groups below must be placed. Default: all of them."""
    topology: TopologyConstraint | None = None
    """The domain in which the pods of this sub-group must, or should, be together: inside the
    domain of the group above."""


class PodGroupSpec(ApiModel):
    """What the owner of a gang asks for."""

    min_member: NonNegative = 1
    """How many pods must be placed together. Pods beyond it are added one by one; 0 makes every
    pod independent."""
    roles: dict[str, NonNegative] = Field(default_factory=dict, max_length=MOST_ROLES)
    """How many pods of each role must be among them."""
    sub_groups: tuple[SubGroup, ...] = Field(default=(), max_length=MOST_SUB_GROUPS)
    """Parts of the gang, as a tree of at most 16 levels."""
    min_sub_group: NonNegative | None = None
    """How many of the top sub-groups must be placed. Default: all of them."""
    topology: TopologyConstraint | None = None
    """The domain in which all pods must, or should, be together."""
    preemptibility: Literal["Preemptible", "NonPreemptible"] | None = None
    """Whether the gang may be evicted for others. Default: by priority, below 100 it may."""
    preemption_delay_seconds: float = Field(default=0.0, ge=0)
    """How long the gang waits before others may be evicted for it."""
    staleness_grace_period_seconds: float | None = None
    """How long a gang that has fallen below its minimum may go on; negative: for ever."""
    expected_runtime_seconds: float | None = Field(default=None, gt=0)
    """How long the gang expects to run: lets small gangs run past a big one that waits."""
    queue: str = "default"
    """The Queue that the gang is counted in."""
    priority_class_name: str | None = None
    """The PriorityClass that orders gangs in a queue; default: the highest of its pods."""


class PodGroupStatus(ApiModel):
    """What the scheduler found."""

    state: GangState = GangState.WAITING
    queue: str = ""
    """The queue that its bound pods are charged to. While it is set, the admission policy lets
    `spec.queue` be changed only by those who may assign to the new queue."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class PodGroup(CustomResource):
    """A gang: pods that name it in the annotation `scheduling.bindery.dev/pod-group`."""

    kind_info: ClassVar[Kind] = Kind(
        kind="PodGroup",
        plural="podgroups",
        short_names=("pg",),
        namespaced=True,
        columns=(
            PrinterColumn(name="Queue", json_path=".spec.queue"),
            PrinterColumn(name="Min", type="integer", json_path=".spec.minMember"),
            PrinterColumn(name="State", json_path=".status.state"),
            PrinterColumn(
                name="Reason", json_path='.status.conditions[?(@.type=="Scheduled")].reason'
            ),
            PrinterColumn(
                name="Message",
                json_path='.status.conditions[?(@.type=="Scheduled")].message',
                priority=1,
            ),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: PodGroupSpec = PodGroupSpec()
    # A default of the schema, not a write: the API server shows it from the first read on.
    status: PodGroupStatus = PodGroupStatus()
