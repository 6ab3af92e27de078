"""PodGroup (`pg`): the pods that are placed together, whole or not at all."""

from typing import Any, ClassVar, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from bindery.api.base import ApiModel, Condition, CustomResource, Kind, PodCount, PrinterColumn
from bindery.api.queue import QueueGangs
from bindery.api.states import (
    INVALID,
    LONGEST_STAGE_TIMEOUT_S,
    MOST_SUB_GROUPS,
    SCHEDULED,
    GangState,
)
from bindery.api.topology import TopologyConstraint

__all__ = ["INVALID", "SCHEDULED"]

MOST_ROLES: Final = 1_000
"""How many roles a PodGroup may name."""
MOST_MEMBERS: Final = 10_000
"""How many entries `spec.members` may have."""
MOST_DEPENDENCIES: Final = 100
"""How many other sub-groups a sub-group may come after."""
_SELECTORS: Final = ("controller", "annotation", "label", "schedulingGroup", "pod")
_ONE_SELECTOR: Final = f"exactly one of {', '.join(_SELECTORS)} must be given"


class Mark(ApiModel):
    """One label or annotation."""

    key: str = Field(min_length=1)
    value: str


class Member(ApiModel):
    """Pods that belong to the PodGroup: exactly one of the five selectors, and `podLabels`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": f"[{', '.join(f'has(self.{name})' for name in _SELECTORS)}]"
                    ".filter(given, given).size() == 1",
                    "message": _ONE_SELECTOR,
                }
            ]
        }
    )

    controller: str | None = Field(default=None, min_length=1)
    """The UID of an object: pods whose owner reference to it has `controller: true`."""
    annotation: Mark | None = None
    """Pods with this annotation."""
    label: Mark | None = None
    """Pods with this label."""
    scheduling_group: str | None = Field(default=None, min_length=1)
    """Pods whose `spec.schedulingGroup.podGroupName` is this name."""
    pod: str | None = Field(default=None, min_length=1)
    """The pod with this UID."""
    pod_labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    """Only those of the selected pods that have all of these labels."""

    @model_validator(mode="after")
    def _has_one_selector(self) -> Self:
        selectors = (self.controller, self.annotation, self.label, self.scheduling_group, self.pod)
        if sum(each is not None for each in selectors) != 1:
            raise ValueError(_ONE_SELECTOR)
        return self


class Dependency(ApiModel):
    """A sub-group whose pods come first."""

    sub_group: str = Field(min_length=1)
    """The name of the other sub-group."""
    condition: Literal["Ready", "Complete", "Bound"]
    """What its pods must have reached before the pods of this sub-group are created. After
    `Complete` they do not run at the same time, and no room is kept."""


class TemplateMeta(ApiModel):
    """The metadata that the pods of a template get."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class PodTemplate(ApiModel):
    """The part of a pod template that decides where its pods can run."""

    metadata: TemplateMeta = TemplateMeta()
    spec: dict[str, Any] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """A PodSpec. What has no influence on the placement can be left out."""


class SubGroup(ApiModel):
    """A part of a gang. Leaves hold pods and say `minMember`; inner ones say `minSubGroup`."""

    name: str = Field(min_length=1)
    parent: str | None = None
    """The sub-group above; unset: directly under the PodGroup."""
    min_member: PodCount | None = None
    """How many pods of this sub-group must be placed together. Default: all of them."""
    min_sub_group: PodCount | None = None
    """How many of the sub-groups below must be placed. Default: all of them."""
    topology: TopologyConstraint | None = None
    """The domain in which the pods of this sub-group must, or should, be together: inside the
    domain of the group above."""
    pod_labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    """The labels that tell the pods of this sub-group. The pod label
    `scheduling.bindery.dev/sub-group` comes first; `podLabels`, `controller` and
    `schedulingGroup` must all match where they are given."""
    controller: str | None = Field(default=None, min_length=1)
    """The UID of the object that controls the pods of this sub-group."""
    scheduling_group: str | None = Field(default=None, min_length=1)
    """The `spec.schedulingGroup.podGroupName` of the pods of this sub-group."""
    after: tuple[Dependency, ...] = Field(default=(), max_length=MOST_DEPENDENCIES)
    """The sub-groups that must come first: the pods of this one are created later."""
    template: PodTemplate | None = None
    """What its pods will ask for, so that their room can be planned before they exist."""


class PodGroupSpec(ApiModel):
    """What the owner of a gang asks for."""

    min_member: PodCount = 1
    """How many pods must be placed together. Pods beyond it are added one by one; 0 makes every
    pod independent."""
    roles: dict[str, PodCount] = Field(default_factory=dict, max_length=MOST_ROLES)
    """How many pods of each role must be among them."""
    sub_groups: tuple[SubGroup, ...] = Field(default=(), max_length=MOST_SUB_GROUPS)
    """Parts of the gang, as a tree of at most 16 levels."""
    min_sub_group: PodCount | None = None
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
    queue: str = ""
    """The Queue that the gang is counted in. Default: that of the namespace, by its label
    `scheduling.bindery.dev/queue`, else `default`."""
    priority_class_name: str | None = None
    """The PriorityClass that orders gangs in a queue; default: the highest of its pods."""
    members: tuple[Member, ...] = Field(default=(), max_length=MOST_MEMBERS)
    """The pods of this PodGroup, in its namespace, beside those that name it in the annotation
    `scheduling.bindery.dev/pod-group`. The annotation of a pod comes first; of two PodGroups that
    select one pod, the older one has it."""
    stage_timeout_seconds: float | None = Field(default=None, ge=0, le=LONGEST_STAGE_TIMEOUT_S)
    """How long the room of sub-groups is kept whose pods come later. Default: 600."""
    disruption_mode: Literal["Pod", "Group"] | None = None
    """What is evicted together: single pods above the minimum (`Pod`, the default), or always the
    whole gang (`Group`)."""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    """Whether others may be evicted for the gang. Default: what its pods have."""
    run_time_limit_seconds: float | None = Field(default=None, gt=0)
    """How long the gang may run, without the times in which it waits. Default: the limit of its
    queue, which applies as well."""


class PodCounts(ApiModel):
    """How many pods a gang has. `bound` and `running` overlap, the others do not."""

    pending: int = 0
    """Those without a node."""
    bound: int = 0
    """Those with a node that have not ended."""
    running: int = 0
    """Those of the bound pods whose containers run."""
    succeeded: int = 0
    failed: int = 0


class Turn(ApiModel):
    """The place of a gang among those that wait and were tried before it; 1 is first.

    A place after the tenth is written again when it has changed by a tenth.
    """

    place: int
    of: int
    """How many gangs and single pods of the node pool wait for room."""
    place_in_queue: int
    of_queue: int
    """How many of them are in the same queue."""


class GangQueue(ApiModel):
    """What the scheduler has written into the status of a queue, and rules of the queue.

    By resource; amounts include the queues below.
    """

    name: str
    quota: dict[str, str] = Field(default_factory=dict)
    """Without an entry: none for GPUs, unlimited for other resources."""
    limit: dict[str, str] = Field(default_factory=dict)
    """Without an entry: unlimited."""
    fair_share: dict[str, str] = Field(default_factory=dict)
    allocated: dict[str, str] = Field(default_factory=dict)
    requested: dict[str, str] = Field(default_factory=dict)
    """Allocated and pending."""
    gangs: QueueGangs = QueueGangs()


class PodGroupStatus(ApiModel):
    """What the scheduler found."""

    state: GangState = GangState.WAITING
    since: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the gang came into its state."""
    pods: PodCounts = PodCounts()
    """Written some seconds late, so that a start or an end of many pods is one write."""
    ran_seconds: float = 0.0
    """How long the gang was in the state Running before its present state."""
    queue: str = ""
    """The queue that its bound pods are charged to. While it is set, the admission policy lets
    `spec.queue` be changed only by those who may assign to the new queue."""
    assigned_queue: str = ""
    """The queue that the gang is scheduled in: `spec.queue`, else that of its namespace."""
    turn: Turn | None = None
    """Its place while it waits for room; written some seconds late."""
    queue_figures: GangQueue | None = None
    """The figures of its queue, for users who may not read queues. Written some seconds late, on
    the oldest gang of each queue in a namespace."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class PodGroup(CustomResource):
    """A gang: the pods that its `spec.members` select, and those that name it in the annotation
    `scheduling.bindery.dev/pod-group`.
    """

    kind_info: ClassVar[Kind] = Kind(
        kind="PodGroup",
        plural="podgroups",
        short_names=("pg",),
        namespaced=True,
        columns=(
            PrinterColumn(name="Queue", json_path=".status.assignedQueue"),
            PrinterColumn(name="Min", type="integer", json_path=".spec.minMember"),
            PrinterColumn(name="State", json_path=".status.state"),
            PrinterColumn(name="Since", type="date", json_path=".status.since"),
            PrinterColumn(name="Pending", type="integer", json_path=".status.pods.pending"),
            PrinterColumn(name="Bound", type="integer", json_path=".status.pods.bound"),
            PrinterColumn(name="Running", type="integer", json_path=".status.pods.running"),
            PrinterColumn(
                name="Succeeded", type="integer", json_path=".status.pods.succeeded", priority=1
            ),
            PrinterColumn(
                name="Failed", type="integer", json_path=".status.pods.failed", priority=1
            ),
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
