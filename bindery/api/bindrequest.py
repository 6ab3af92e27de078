"""BindRequest (`br`): one or more committed Statements, which the binder carries out.

The scheduler writes `spec` once; later it only adds to `withdrawn`. The binder alone writes
`status`. Each Statement is bound whole or not at all, whatever becomes of its neighbours.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, Field

from bindery.api.base import ApiModel, CustomResource, Kind, NonNegative, PrinterColumn
from bindery.api.states import MALFORMED, Phase

__all__ = ["Phase"]

_NAMES_SHOWN: Final = 2
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
    """The Statement that it builds on is gone, and its outcome is unknown."""
    PLUGIN_FAILED = "PluginFailed"
    BIND_FAILED = "BindFailed"
    UNCERTAIN = "Uncertain"
    """A binding was sent and no answer came; it is looked up before anything else is done."""
    INTERNAL_ERROR = "InternalError"
    MALFORMED = MALFORMED
    WITHDRAWN = "Withdrawn"
    """The scheduler has withdrawn the Statement."""
    PART_GONE = "PartGone"
    """A part of the Statement was deleted or changed while it was carried out."""

    @property
    def blames_node(self) -> bool:
        """Whether the node caused the failure; the job then avoids it for a while."""
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
        BindFailureReason.WITHDRAWN,
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
    non_preemptible: bool = False
    """Whether the pod is charged as non-preemptible."""
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


class StatementSpec(ApiModel):
    """Pods and their nodes that the scheduler has committed together."""

    id: str
    """Unique in the namespace; the parts of a Statement that was split share it."""
    part: NonNegative = 0
    parts: int = Field(default=1, ge=1, le=10000)
    """Number of requests over which the Statement is split; the binder starts when all have come.
    A part is alone in its request."""
    after: str | None = None
    """The id of the prerequisite Statement, such as the gang whose extra pods these are. The binder
    begins this one when that one has Succeeded, and fails it when that one has Failed or is gone.
    """
    pod_group: PodGroupReference | None = None
    queue: str = ""
    """The queue that the pods are charged to."""
    min_bound: NonNegative | None = None
    """How many pods of the whole Statement must pass PreBind for any to be bound. Default: all.
    0: each pod succeeds or fails alone."""
    priority: int = 0
    """The highest priority of its jobs. Among bindings that wait for a place, the highest goes
    first."""
    pods: tuple[PodBinding, ...] = Field(min_length=1, max_length=500)


class RequestSummary(ApiModel):
    """The request in a few words, for the columns of `kubectl get`."""

    gangs: str = ""
    """Its PodGroups: trainer,evaluator +3."""
    pods: NonNegative
    """How many pods it binds."""
    nodes: str
    """To which nodes: node-1,node-2 +3."""


class BindRequestSpec(ApiModel):
    """What the scheduler decided.

    An announcement of a new leader of the scheduler has a fencingToken and no Statements.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.statements) || self.fencingToken > 0",
                    "message": "statements must be given; only the announcement of a fencingToken"
                    " has none",
                }
            ]
        }
    )

    statements: tuple[StatementSpec, ...] = Field(default=(), min_length=1, max_length=500)
    withdrawn: tuple[str, ...] = Field(default=(), max_length=500)
    """The ids of Statements that the scheduler has withdrawn. What is not bound of them is rolled
    back."""
    summary: RequestSummary | None = None
    backoff_limit: NonNegative = 5
    """How many times a failed attempt is tried again before the Statement is Failed."""
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


class _Progress(ApiModel):
    """How far the binder has come."""

    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    failed_attempts: NonNegative = 0
    completion_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"})


class StatementStatus(_Progress):
    """What the binder did for one Statement."""

    id: str
    next_attempt_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    bound_pods: tuple[str, ...] = Field(default=(), alias="boundPods")
    """UIDs of the pods that have been bound, while the Statement has no outcome. Once it has one,
    all its pods are bound that are not in unboundPods."""
    unbound_pods: tuple[UnboundPod, ...] = ()
    """Pods that were given up."""


class BindRequestStatus(_Progress):
    """What the binder did.

    `phase` is Succeeded or Failed when all Statements have ended, and Failed if one of them is.
    """

    statements: tuple[StatementStatus, ...] = ()
    bound_count: NonNegative = 0
    """How many pods have been bound."""


class BindRequest(CustomResource):
    """Committed plans: these pods onto these nodes, each gang whole or not at all."""

    kind_info: ClassVar[Kind] = Kind(
        kind="BindRequest",
        plural="bindrequests",
        short_names=("br",),
        namespaced=True,
        columns=(
            PrinterColumn(name="Phase", json_path=".status.phase"),
            PrinterColumn(name="Gangs", json_path=".spec.summary.gangs"),
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


def few_names(names: Iterable[str]) -> str:
    """Return the first of the different `names`, and how many more there are: `a,b +3`."""
    distinct = list(dict.fromkeys(names))
    text = ",".join(distinct[:_NAMES_SHOWN])
    hidden = len(distinct) - _NAMES_SHOWN
    return f"{text} +{hidden}" if hidden > 0 else text
