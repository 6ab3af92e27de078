"""BindRequest (`br`): one or more committed Statements, stored together and read one by one.

The scheduler writes the spec once; later it only adds to `withdrawn`. The binder alone writes the
status. Each Statement is bound whole or not at all, and other Statements do not affect the result.

All code works with `CommittedStatement`, one Statement with its metadata and status, except at
three edges: `BindRequest.each`, the scheduler's writer of requests, and the binder's writer of
status. Structs as in `watched`.
"""

from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec
from msgspec import field

from bindery.api.bindrequest import ReceivedResourceType
from bindery.api.names import FENCE_LABEL
from bindery.api.states import MALFORMED, Phase
from bindery.kube.objects.declaring import (
    DATE_TIME,
    REQUIRED,
    FreeForm,
    Kind,
    NonNegative,
    PrinterColumn,
    Validation,
    schema,
    word_of,
)
from bindery.kube.objects.watched import CustomResource, KubeObject


class ReceivedGPU(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The GPUs that a pod gets."""

    count: NonNegative = 0
    portion: str = "1.00"
    """The part of each device, with two decimals."""


class PodBinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One pod of the Statement, with its chosen node."""

    pod_name: str
    pod_uid: str = field(name="podUID")
    """Pods are matched by UID: a re-created pod with the same name is another pod."""
    selected_node: str
    non_preemptible: bool = False
    """Whether the pod is charged as non-preemptible."""
    received_resource_type: Annotated[str, word_of(ReceivedResourceType)] = (
        ReceivedResourceType.REGULAR.value
    )
    received_gpu: ReceivedGPU | None = field(default=None, name="receivedGPU")
    selected_gpu_groups: Annotated[list[str], schema(maxItems=64)] = field(
        default_factory=list, name="selectedGPUGroups"
    )
    """The GPU group on each device of a Fraction; a new name opens a group."""
    plugin_data: FreeForm = field(default_factory=dict)
    """The values that a scheduler plugin passes to the binder plugin of the same name."""


class PodGroupReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The gang that the pods belong to."""

    name: str
    uid: str


class StatementSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Pods, with their nodes, that the scheduler has committed together."""

    id: str
    """An id that is unique in the namespace; the parts of a split Statement share the id."""
    part: NonNegative = 0
    parts: Annotated[int, schema(minimum=1, maximum=10000)] = 1
    """Number of requests over which the Statement is split; the binder starts when all requests
    exist. A request with a part holds no other Statement."""
    after: str | None = None
    """The id of the prerequisite Statement; for extra pods, the Statement of their gang. The binder
    begins this Statement when the prerequisite has Succeeded, and fails this Statement when the
    prerequisite has Failed or is deleted.
    """
    pod_group: PodGroupReference | None = None
    queue: str = ""
    """The queue that the pods are charged to."""
    min_bound: NonNegative | None = None
    """How many pods of the whole Statement must pass PreBind before any pod is bound. Default: all.
    With 0, each pod succeeds or fails alone."""
    priority: int = 0
    """The highest priority of the Statement's jobs. Among waiting bindings, the highest priority
    goes first."""
    pods: Annotated[list[PodBinding], schema(minItems=1, maxItems=500)]


class RequestSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The request in a few words, for the columns of `kubectl get`."""

    gangs: str = ""
    """The PodGroups of the Statement: trainer,evaluator +3."""
    pods: NonNegative
    """How many pods the Statement binds."""
    nodes: str
    """To which nodes: node-1,node-2 +3."""


class BindRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The decision of the scheduler.

    An announcement of a new leader of the scheduler has a fencingToken and no Statements.
    """

    validations: ClassVar = (
        Validation(
            "has(self.statements) || self.fencingToken > 0",
            "statements must be given; only the announcement of a fencingToken has none",
        ),
    )

    statements: Annotated[list[StatementSpec], schema(minItems=1, maxItems=500)] = field(
        default_factory=list
    )
    withdrawn: Annotated[list[str], schema(maxItems=500)] = field(default_factory=list)
    """The ids of Statements that the scheduler has withdrawn. The binder rolls back their pods that
    are not bound."""
    summary: RequestSummary | None = None
    backoff_limit: NonNegative = 5
    """How many times the binder retries a failed attempt before the Statement is Failed."""
    fencing_token: NonNegative = 0
    """The scheduler Lease's transition count. The binder refuses a token that is older than the
    newest token of the node pool."""


class UnboundPod(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod that was not bound, and why."""

    pod_name: str
    pod_uid: str = field(name="podUID")
    node: str
    reason: str
    """One CamelCase word: PodGone, PodReplaced, NodeGone, BoundElsewhere, PluginFailed, …"""
    message: str = ""


class _Progress(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The progress of the binder."""

    phase: Annotated[str, word_of(Phase)] = Phase.PENDING.value
    reason: str = ""
    message: str = ""
    failed_attempts: NonNegative = 0
    completion_time: Annotated[str | None, DATE_TIME] = None

    @property
    def is_final(self) -> bool:
        """Whether the phase is final: the binder does no more work."""
        return self.phase in _FINAL_PHASES


class StatementStatus(_Progress, frozen=True, rename="camel", kw_only=True, gc=False):
    """The result of the binder for one Statement."""

    id: Annotated[str, REQUIRED] = ""
    next_attempt_time: Annotated[str | None, DATE_TIME] = None
    bound_pods: list[str] = field(default_factory=list, name="boundPods")
    """UIDs of the bound pods while the Statement has no outcome. When the Statement has an outcome,
    all pods of the Statement are bound except the pods in unboundPods."""
    unbound_pods: list[UnboundPod] = field(default_factory=list)
    """Pods that were given up."""


class BindRequestStatus(_Progress, frozen=True, rename="camel", kw_only=True, gc=False):
    """The result of the binder.

    `phase` is Succeeded or Failed when all Statements have ended, and Failed if one Statement is
    Failed.
    """

    statements: list[StatementStatus] = field(default_factory=list)
    bound_count: NonNegative = 0
    """How many pods have been bound."""


class StatementKey(NamedTuple):
    """Identifies a Statement, or a part of a split Statement."""

    namespace: str
    statement: str
    """The id of the Statement."""
    part: int


class CommittedStatement(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """One Statement of a BindRequest, with the metadata of the request. `BindRequest.each` makes
    it.

    A split Statement has one `CommittedStatement` for each part.
    """

    spec: StatementSpec
    status: StatementStatus = field(default_factory=StatementStatus)
    siblings: tuple[str, ...] = ()
    """The ids of all Statements in the request, with the id of this Statement."""
    is_withdrawn: bool = False
    """Whether the scheduler has withdrawn the Statement."""
    backoff_limit: int = 5
    fencing_token: int = 0

    @property
    def key(self) -> StatementKey:
        """The identity of the Statement among all Statements."""
        return StatementKey(self.metadata.namespace, self.spec.id, self.spec.part)

    @property
    def is_final(self) -> bool:
        """Whether the binder does no more work for this object."""
        return self.status.is_final

    def asks_for_the_same(self, other: "CommittedStatement") -> bool:
        """Whether `other`, a state of the Statement, has the same values from the scheduler."""
        return (
            self.spec == other.spec
            and self.is_withdrawn == other.is_withdrawn
            and self.backoff_limit == other.backoff_limit
            and self.fencing_token == other.fencing_token
        )

    def is_changed_in(self, other: "CommittedStatement") -> bool:
        """Whether `other`, a state of the same Statement, requests other work.

        The withdrawal of another Statement changes the generation of the request, but not this
        Statement.
        """
        if self.metadata.generation == other.metadata.generation:
            return False
        return not self.asks_for_the_same(other)


class BindRequest(CustomResource, frozen=True, rename="camel", kw_only=True, gc=False):
    """Committed plans: pods with their nodes, each gang whole or not at all."""

    kind_info: ClassVar[Kind] = Kind(
        kind="BindRequest",
        plural="bindrequests",
        short_names=("br",),
        namespaced=True,
        columns=(
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Gangs", ".spec.summary.gangs"),
            PrinterColumn("Pods", ".spec.summary.pods", "integer"),
            PrinterColumn("Bound", ".status.boundCount", "integer"),
            PrinterColumn("Nodes", ".spec.summary.nodes"),
            PrinterColumn("Attempts", ".status.failedAttempts", "integer"),
            PrinterColumn("Reason", ".status.reason"),
            PrinterColumn("Message", ".status.message", priority=1),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
    spec: BindRequestSpec
    # A default of the schema, not a write: the API server shows it from the first read on.
    status: BindRequestStatus = field(default_factory=BindRequestStatus)

    @property
    def is_final(self) -> bool:
        """Whether the binder does no more work for this object."""
        return self.status.is_final

    @property
    def is_fence(self) -> bool:
        """Whether the request only announces a fencing token, without a Statement."""
        return FENCE_LABEL in self.metadata.labels and not self.spec.statements

    def each(self) -> tuple[CommittedStatement, ...]:
        """Return the Statements of the request; none of an announcement or malformed request."""
        spec = self.spec
        statuses = {status.id: status for status in self.status.statements}
        siblings = tuple(each.id for each in spec.statements)
        return tuple(
            CommittedStatement(
                metadata=self.metadata,
                spec=each,
                status=_status_of(each, statuses.get(each.id), self.status),
                siblings=siblings,
                is_withdrawn=each.id in spec.withdrawn,
                backoff_limit=spec.backoff_limit,
                fencing_token=spec.fencing_token,
            )
            for each in spec.statements
        )


def _status_of(
    statement: StatementSpec, status: StatementStatus | None, whole: BindRequestStatus
) -> StatementStatus:
    """Return the status of one Statement. `whole`: the status of its request."""
    read = status if status is not None else StatementStatus()
    if not read.is_final:
        if whole.phase != Phase.FAILED:
            return read
        # It has failed with a request that failed as a whole, such as a malformed one.
        return msgspec.structs.replace(
            read,
            phase=whole.phase,
            reason=whole.reason,
            message=whole.message,
            completion_time=whole.completion_time,
        )
    if read.reason == MALFORMED and not read.unbound_pods:
        return read  # none of its pods was looked at
    unbound = {pod.pod_uid for pod in read.unbound_pods}
    bound = [pod.pod_uid for pod in statement.pods if pod.pod_uid not in unbound]
    return msgspec.structs.replace(read, bound_pods=bound)


_FINAL_PHASES: Final = frozenset(phase.value for phase in Phase if phase.is_final)
