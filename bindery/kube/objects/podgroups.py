"""PodGroup (`pg`): the pods that are placed together, whole or not at all."""

from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import field

from bindery.api.states import LONGEST_STAGE_TIMEOUT_S, MOST_GANG_PODS, MOST_SUB_GROUPS, GangState
from bindery.kube.objects.declaring import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    DATE_TIME,
    LIST_BY_TYPE,
    FreeForm,
    Kind,
    NonNegative,
    PodCount,
    PrinterColumn,
    Validation,
    one_of,
    schema,
    word_of,
)
from bindery.kube.objects.queues import GangCounts
from bindery.kube.objects.watched import Condition, CustomResource

MOST_ROLES: Final = 1_000
"""How many roles a PodGroup may name."""
MOST_MEMBERS: Final = 10_000
"""How many entries `spec.members` may have."""
MOST_DEPENDENCIES: Final = 100
"""How many other sub-groups a sub-group may follow."""
_SELECTORS: Final = ("controller", "annotation", "label", "schedulingGroup", "pod")
_ONE_SELECTOR: Final = f"exactly one of {', '.join(_SELECTORS)} must be given"


class Segments(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Consecutive pods of a gang, in the order of their ranks, that share a domain."""

    size: Annotated[int, schema(minimum=1, maximum=MOST_GANG_PODS)]
    """Number of pods in a segment; the last segment has the rest."""
    required: str | None = None
    """The level at which each segment must be in one domain. Default: the preferred level, else the
    deepest level with room for a whole segment."""
    preferred: str | None = None
    """The level that is tried first."""


class TopologyConstraint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The domain in which the pods must, or should, be together.

    Levels are node labels: of the Topology in `name`, or any label without a name. `hyperNodeTier`
    is for trees of HyperNodes.
    """

    name: str | None = None
    """The name of the Topology. Unset: each level is a separate tree of the nodes with the label of
    the level.
    """
    required: str | None = None
    """The level at which all pods must be in one domain."""
    preferred: str | None = None
    """The deepest level, which is tried first; the levels above follow, up to the required
    level."""
    hyper_node_tier: NonNegative | None = None
    """The highest tier of a HyperNode that may hold all pods."""
    mode: Annotated[str | None, one_of("hard", "soft")] = None
    """For HyperNodes: `soft` also allows nodes without a common HyperNode. Default: hard."""
    exclusive: bool = False
    """Whether the domain of the required level, or of the tier, is exclusively for this gang."""
    segments: Segments | None = None
    """Parts of the gang that are placed closer together than the whole."""


class Mark(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One label or annotation."""

    key: Annotated[str, schema(minLength=1)]
    value: str


class Member(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Pods that belong to the PodGroup: exactly one of the five selectors, and `podLabels`."""

    validations: ClassVar = (
        Validation(
            f"[{', '.join(f'has(self.{name})' for name in _SELECTORS)}]"
            ".filter(given, given).size() == 1",
            _ONE_SELECTOR,
            lambda member: _selector_count(member) == 1,
        ),
    )

    controller: Annotated[str | None, schema(minLength=1)] = None
    """The UID of an object: pods whose owner reference to it has `controller: true`."""
    annotation: Mark | None = None
    """Pods with this annotation."""
    label: Mark | None = None
    """Pods with this label."""
    scheduling_group: Annotated[str | None, schema(minLength=1)] = None
    """Pods whose `spec.schedulingGroup.podGroupName` is this name."""
    pod: Annotated[str | None, schema(minLength=1)] = None
    """The pod with this UID."""
    pod_labels: Annotated[dict[str, str], schema(maxProperties=16)] = field(default_factory=dict)
    """The labels that a selected pod must have."""


def _selector_count(member: Any) -> int:
    given = (
        member.controller,
        member.annotation,
        member.label,
        member.scheduling_group,
        member.pod,
    )
    return sum(each is not None for each in given)


class Dependency(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A dependency on a sub-group with earlier pods."""

    sub_group: Annotated[str, schema(minLength=1)]
    """The name of the other sub-group."""
    condition: Annotated[str, one_of("Ready", "Complete", "Bound")]
    """The state that the pods of the other sub-group must reach before the pods of this sub-group
    are created. With `Complete`, the two sub-groups do not run at the same time, and no room is
    kept."""


class TemplateMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The metadata that the pods of a template get."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class PodTemplate(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The part of a pod template that decides where its pods can run."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: FreeForm = field(default_factory=dict)
    """A PodSpec. Fields without influence on the placement can be left out."""


class SubGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A part of a gang. A leaf holds pods and has `minMember`; an inner sub-group has
    `minSubGroup`.
    """

    name: Annotated[str, schema(minLength=1)]
    parent: str | None = None
    """The sub-group above; unset: directly under the PodGroup."""
    min_member: PodCount | None = None
    """How many pods of this sub-group must be placed together. Default: all of them."""
    min_sub_group: PodCount | None = None
    """How many of the sub-groups below must be placed. Default: all of them."""
    topology: TopologyConstraint | None = None
    """The domain in which the pods of this sub-group must, or should, be together: inside the
    domain of the group above."""
    pod_labels: Annotated[dict[str, str], schema(maxProperties=16)] = field(default_factory=dict)
    """The labels that select the pods of this sub-group. The pod label
    `scheduling.bindery.dev/sub-group` comes first. Of `podLabels`, `controller` and
    `schedulingGroup`, all that are set must match."""
    controller: Annotated[str | None, schema(minLength=1)] = None
    """The UID of the object that controls the pods of this sub-group."""
    scheduling_group: Annotated[str | None, schema(minLength=1)] = None
    """The `spec.schedulingGroup.podGroupName` of the pods of this sub-group."""
    after: Annotated[list[Dependency], schema(maxItems=MOST_DEPENDENCIES)] = field(
        default_factory=list
    )
    """The sub-groups that must come first: the pods of this sub-group are created later."""
    template: PodTemplate | None = None
    """The requests of the future pods: the scheduler plans room before the pods exist."""


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The request of the owner of a gang."""

    min_member: PodCount = 1
    """How many pods must be placed together. Further pods are added one by one; 0 makes every pod
    independent."""
    roles: Annotated[dict[str, PodCount], schema(maxProperties=MOST_ROLES)] = field(
        default_factory=dict
    )
    """How many pods of each role must be among the pods of `minMember`."""
    sub_groups: Annotated[list[SubGroup], schema(maxItems=MOST_SUB_GROUPS)] = field(
        default_factory=list
    )
    """Parts of the gang, as a tree of at most 16 levels."""
    min_sub_group: PodCount | None = None
    """How many of the top sub-groups must be placed. Default: all of them."""
    topology: TopologyConstraint | None = None
    """The domain in which all pods must, or should, be together."""
    preemptibility: Annotated[str | None, one_of("Preemptible", "NonPreemptible")] = None
    """Whether the gang may be evicted for others. Default: the gang may be evicted if its priority
    is below 100."""
    preemption_delay_seconds: Annotated[float, AT_LEAST_ZERO] = 0.0
    """How long the gang waits before others may be evicted for it."""
    staleness_grace_period_seconds: float | None = None
    """How long a gang may continue below its minimum; a negative value means for ever."""
    expected_runtime_seconds: Annotated[float | None, ABOVE_ZERO] = None
    """The expected run time of the gang: small gangs may run before a large waiting gang."""
    queue: str = ""
    """The Queue of the gang. Default: the queue of the namespace, by the label
    `scheduling.bindery.dev/queue`, else `default`."""
    priority_class_name: str | None = None
    """The PriorityClass that orders gangs in a queue; default: the highest class of the gang's
    pods."""
    members: Annotated[list[Member], schema(maxItems=MOST_MEMBERS)] = field(default_factory=list)
    """The selectors of this PodGroup's pods, in the namespace of the PodGroup. Pods can also name a
    PodGroup in the annotation `scheduling.bindery.dev/pod-group`, which comes first. Of two
    PodGroups that select one pod, the older PodGroup gets the pod."""
    stage_timeout_seconds: Annotated[
        float | None, schema(minimum=0, maximum=LONGEST_STAGE_TIMEOUT_S)
    ] = None
    """How long the scheduler keeps room for sub-groups with later pods. Default: 600."""
    disruption_mode: Annotated[str | None, one_of("Pod", "Group")] = None
    """The unit of eviction: single pods above the minimum (`Pod`, the default), or always the whole
    gang (`Group`)."""
    preemption_policy: Annotated[str | None, one_of("PreemptLowerPriority", "Never")] = None
    """Whether other gangs may be evicted for the gang. Default: the policy of the gang's pods."""
    run_time_limit_seconds: Annotated[float | None, ABOVE_ZERO] = None
    """How long the gang may run; waiting times do not count. Default: the limit of the gang's
    queue, which applies as well."""


class PodCounts(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many pods a gang has. `bound` and `running` overlap, the other counts do not."""

    pending: int = 0
    """The number of pods without a node."""
    bound: int = 0
    """The number of pods with a node that have not ended."""
    running: int = 0
    """The number of bound pods with running containers."""
    succeeded: int = 0
    failed: int = 0


class Turn(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The place of a gang in the order of the waiting gangs; 1 is first.

    A place after the tenth is written again after a change by a tenth.
    """

    place: int
    of: int
    """How many gangs and single pods of the node pool wait for room."""
    place_in_queue: int
    of_queue: int
    """How many of the waiting gangs and single pods are in the same queue."""


class GangQueue(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The figures from the status of a queue, with rules of the queue.

    By resource; amounts include the queues below.
    """

    name: str
    quota: dict[str, str] = field(default_factory=dict)
    """A resource without an entry is unlimited; GPUs without an entry have quota 0."""
    limit: dict[str, str] = field(default_factory=dict)
    """Without an entry: unlimited."""
    fair_share: dict[str, str] = field(default_factory=dict)
    allocated: dict[str, str] = field(default_factory=dict)
    requested: dict[str, str] = field(default_factory=dict)
    """Allocated and pending."""
    gangs: GangCounts = GangCounts()


class PodGroupStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The observations of the scheduler."""

    state: Annotated[str, word_of(GangState)] = GangState.WAITING.value
    since: Annotated[str | None, DATE_TIME] = None
    """When the gang entered its state."""
    pods: PodCounts = PodCounts()
    """The counts of the gang's pods. Written with a delay of some seconds: the start or the end of
    many pods is one write."""
    ran_seconds: float = 0.0
    """How long the gang was Running before its current state."""
    queue: str = ""
    """The queue to which the bound pods are charged. While the field is set, the admission policy
    allows changes of `spec.queue` only to users who may assign to the new queue."""
    assigned_queue: str = ""
    """The queue of the gang: `spec.queue`, else the queue of the gang's namespace."""
    turn: Turn | None = None
    """The place of a waiting gang; written with a delay of some seconds."""
    queue_figures: GangQueue | None = None
    """The figures of the gang's queue, for users who may not read queues. Written with a delay of
    some seconds, on the oldest gang of each queue in a namespace."""
    conditions: Annotated[list[Condition] | None, LIST_BY_TYPE] = None


class PodGroup(CustomResource, frozen=True, rename="camel", kw_only=True, gc=False):
    """A gang: the pods that `spec.members` selects, and the pods that name the PodGroup in the
    annotation `scheduling.bindery.dev/pod-group`.
    """

    kind_info: ClassVar[Kind] = Kind(
        kind="PodGroup",
        plural="podgroups",
        short_names=("pg",),
        namespaced=True,
        columns=(
            PrinterColumn("Queue", ".status.assignedQueue"),
            PrinterColumn("Min", ".spec.minMember", "integer"),
            PrinterColumn("State", ".status.state"),
            PrinterColumn("Since", ".status.since", "date"),
            PrinterColumn("Pending", ".status.pods.pending", "integer"),
            PrinterColumn("Bound", ".status.pods.bound", "integer"),
            PrinterColumn("Running", ".status.pods.running", "integer"),
            PrinterColumn("Succeeded", ".status.pods.succeeded", "integer", priority=1),
            PrinterColumn("Failed", ".status.pods.failed", "integer", priority=1),
            PrinterColumn(
                "Idle", '.status.conditions[?(@.type=="GpusIdle")].lastTransitionTime', "date"
            ),
            PrinterColumn("Reason", '.status.conditions[?(@.type=="Scheduled")].reason'),
            PrinterColumn(
                "Message", '.status.conditions[?(@.type=="Scheduled")].message', priority=1
            ),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    # A default of the schema, not a write: the API server shows it from the first read on.
    status: PodGroupStatus = field(default_factory=PodGroupStatus)
    unreadable: str = ""
    """Why the object was read only in part."""
