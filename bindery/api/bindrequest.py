"""BindRequest (`br`): one committed Statement, which the binder carries out.

The scheduler writes `spec` once and never changes it; the binder alone writes `status`.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar, Final

from pydantic import Field

from bindery.api.base import ApiModel, CustomResource, Kind, NonNegative, PrinterColumn
from bindery.api.states import Phase

__all__ = ["Phase"]

_NODES_SHOWN: Final = 2
"""More would make the column of `kubectl get` wider than a terminal."""


class ReceivedResourceType(StrEnum):
    """In which form a pod gets its GPUs."""

    REGULAR = "Regular"
    FRACTION = "Fraction"
    MIG_INSTANCE = "MigInstance"


class BindFailureReason(StrEnum):
    """Why the binder has not bound a pod. Binder plugins add words of their own."""

    POD_GONE = "PodGone"
    """The pod does not exist, is being deleted, or has ended."""
    POD_REPLACED = "PodReplaced"
    """Another pod has the name now."""
    NODE_GONE = "NodeGone"
    BOUND_ELSEWHERE = "BoundElsewhere"
    STALE_SCHEDULER = "StaleScheduler"
    """A newer leader of the scheduler has planned since."""
    HELD_BY_OTHER_REQUEST = "HeldByOtherRequest"
    """Another request that is being carried out has the pod."""
    GANG_ABORTED = "GangAborted"
    """Nothing is wrong with this pod, but too few of the others can be bound."""
    CHECK_FAILED = "CheckFailed"
    """The API server could not be asked about the pod or its node."""
    PREDECESSOR_FAILED = "PredecessorFailed"
    """The Statement that it builds on has failed: of the gang whose extra pods these are."""
    PREDECESSOR_GONE = "PredecessorGone"
    """The Statement that it builds on is gone, and nobody can say how it ended."""
    PLUGIN_FAILED = "PluginFailed"
    BIND_FAILED = "BindFailed"
    UNCERTAIN = "Uncertain"
    """A binding was sent and no answer came; it is looked up before anything else is done."""
    INTERNAL_ERROR = "InternalError"
    MALFORMED = "Malformed"
    PART_GONE = "PartGone"
    """A part of the Statement was deleted or changed while it was carried out."""

    @property
    def blames_node(self) -> bool:
        """Whether the failure speaks against the node, which the job then avoids for a while."""
        return self not in _FAULTS_OF_OTHERS


_FAULTS_OF_OTHERS: Final = frozenset(
    {
        BindFailureReason.BOUND_ELSEWHERE,
        BindFailureReason.GANG_ABORTED,
        BindFailureReason.HELD_BY_OTHER_REQUEST,
        BindFailureReason.MALFORMED,
        BindFailureReason.PART_GONE,
        BindFailureReason.POD_GONE,
        BindFailureReason.POD_REPLACED,
        BindFailureReason.PREDECESSOR_FAILED,
        BindFailureReason.PREDECESSOR_GONE,
        BindFailureReason.STALE_SCHEDULER,
    }
)


class ReceivedGPU(ApiModel):
    """The GPUs that a pod gets."""

    count: NonNegative = 0
    portion: str = "1.00"
    """The part of each device, with two decimals."""


class PodBinding(ApiModel):
    """One pod of the Statement and the node that was chosen for it."""

    pod_name: str
    pod_uid: str = Field(alias="podUID")
    """Pods are matched by UID: a re-created pod with the same name is another pod."""
    selected_node: str
    received_resource_type: ReceivedResourceType = ReceivedResourceType.REGULAR
    received_gpu: ReceivedGPU | None = Field(default=None, alias="receivedGPU")
    selected_gpu_groups: tuple[str, ...] = Field(
        default=(), alias="selectedGPUGroups", max_length=64
    )
    """Of a Fraction: the GPU group on each of its devices; a new name opens a group."""
    plugin_data: dict[str, Any] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """What a scheduler plugin hands to the binder plugin of the same name."""


class PodGroupReference(ApiModel):
    """The gang that the pods belong to."""

    name: str
    uid: str


class StatementReference(ApiModel):
    """Which Statement this request carries, and which part of it."""

    id: str
    """Unique to the Statement; the parts of one that was split share it."""
    part: NonNegative = 0
    parts: int = Field(default=1, ge=1, le=10000)
    """The binder starts when all parts have come."""
    after: str | None = None
    """The Statement, by its id, without which this one must not be: the gang whose extra pods these
    are. The binder begins this one when that one has Succeeded, and fails it when that one has
    Failed or is gone."""


class RequestSummary(ApiModel):
    """The request in two words, for people: the columns of `kubectl get`."""

    pods: NonNegative
    """How many pods it binds."""
    nodes: str
    """To which nodes: node-1,node-2 +3."""


class BindRequestSpec(ApiModel):
    """What the scheduler decided."""

    pods: tuple[PodBinding, ...] = Field(min_length=1, max_length=500)
    summary: RequestSummary | None = None
    pod_group: PodGroupReference | None = None
    queue: str = ""
    """The queue that the pods are charged to."""
    statement: StatementReference
    min_bound: NonNegative | None = None
    """How many pods of the whole Statement must pass PreBind for any to be bound. Default: all.
    0: each pod succeeds or fails alone."""
    priority: int = 0
    """The highest priority of its jobs: of bindings that wait for a place, the highest goes
    first."""
    backoff_limit: NonNegative = 5
    """How many times a failed attempt is tried again before the request is Failed."""
    fencing_token: NonNegative = 0
    """The scheduler Lease's transition count. The binder refuses a token older than the newest it
    has seen for the node pool."""


class UnboundPod(ApiModel):
    """A pod that was not bound, and why."""

    pod_name: str
    pod_uid: str = Field(alias="podUID")
    node: str
    reason: str
    """One CamelCase word: PodGone, PodReplaced, NodeGone, BoundElsewhere, PluginFailed, …"""
    message: str = ""


class BindRequestStatus(ApiModel):
    """What the binder did."""

    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    failed_attempts: NonNegative = 0
    next_attempt_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    completion_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    bound_pods: tuple[str, ...] = Field(default=(), alias="boundPods")
    """UIDs of the pods that this request has bound."""
    unbound_pods: tuple[UnboundPod, ...] = ()
    """Pods that were given up; in phase Failed, all that are not in boundPods."""
    bound_count: NonNegative = 0
    """The length of boundPods, for people."""


class BindRequest(CustomResource):
    """A committed plan: these pods onto these nodes, all or at least `minBound` of them."""

    kind_info: ClassVar[Kind] = Kind(
        kind="BindRequest",
        plural="bindrequests",
        short_names=("br",),
        namespaced=True,
        columns=(
            PrinterColumn(name="Phase", json_path=".status.phase"),
            PrinterColumn(name="Gang", json_path=".spec.podGroup.name"),
            PrinterColumn(name="Pods", type="integer", json_path=".spec.summary.pods"),
            PrinterColumn(name="Bound", type="integer", json_path=".status.boundCount"),
            PrinterColumn(name="Nodes", json_path=".spec.summary.nodes"),
            PrinterColumn(name="Attempts", type="integer", json_path=".status.failedAttempts"),
            PrinterColumn(name="Reason", json_path=".status.reason"),
            PrinterColumn(name="Message", json_path=".status.message", priority=1),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: BindRequestSpec
    # A default of the schema, not a write: the API server shows it from the first read on.
    status: BindRequestStatus = BindRequestStatus()


def nodes_summary(nodes: Iterable[str]) -> str:
    """Return the nodes for people: `node-1,node-2 +3`."""
    distinct = list(dict.fromkeys(nodes))
    text = ",".join(distinct[:_NODES_SHOWN])
    hidden = len(distinct) - _NODES_SHOWN
    return f"{text} +{hidden}" if hidden > 0 else text
