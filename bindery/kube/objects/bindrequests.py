"""BindRequest (`br`): one or more committed Statements, stored together and read one by one.

The scheduler writes the spec once; later it only adds to `withdrawn`. The binder alone writes the
status. Each Statement is bound whole or not at all, whatever becomes of its neighbours.

Everything but the edges works with `CommittedStatement`, one Statement with all that concerns it.
The edges are: `BindRequest.each` where requests are read, the scheduler's writer of requests, and
the binder's writer of status. Structs as in `watched`.
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
    """One pod of the Statement and the node that was chosen for it."""

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
    """Of a Fraction: the GPU group on each of its devices; a new name opens a group."""
    plugin_data: FreeForm = field(default_factory=dict)
    """What a scheduler plugin hands to the binder plugin of the same name."""


class PodGroupReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The gang that the pods belong to."""

    name: str
    uid: str


class StatementSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Pods and their nodes that the scheduler has committed together."""

    id: str
    """Unique in the namespace; the parts of a Statement that was split share it."""
    part: NonNegative = 0
    parts: Annotated[int, schema(minimum=1, maximum=10000)] = 1
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
    pods: Annotated[list[PodBinding], schema(minItems=1, maxItems=500)]


class RequestSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The request in a few words, for the columns of `kubectl get`."""

    gangs: str = ""
    """Its PodGroups: trainer,evaluator +3."""
    pods: NonNegative
    """How many pods it binds."""
    nodes: str
    """To which nodes: node-1,node-2 +3."""


class BindRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the scheduler decided.

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
    """The ids of Statements that the scheduler has withdrawn. What is not bound of them is rolled
    back."""
    summary: RequestSummary | None = None
    backoff_limit: NonNegative = 5
    """How many times a failed attempt is tried again before the Statement is Failed."""
    fencing_token: NonNegative = 0
    """The scheduler Lease's transition count. The binder refuses a token older than the newest it
    has seen for the node pool."""


class UnboundPod(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod that was not bound, and why."""

    pod_name: str
    pod_uid: str = field(name="podUID")
    node: str
    reason: str
    """One CamelCase word: PodGone, PodReplaced, NodeGone, BoundElsewhere, PluginFailed, …"""
    message: str = ""


class _Progress(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How far the binder has come."""

    phase: Annotated[str, word_of(Phase)] = Phase.PENDING.value
    reason: str = ""
    message: str = ""
    failed_attempts: NonNegative = 0
    completion_time: Annotated[str | None, DATE_TIME] = None

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for what this is the status of."""
        return self.phase in _FINAL_PHASES


class StatementStatus(_Progress, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the binder did for one Statement."""

    id: Annotated[str, REQUIRED] = ""
    next_attempt_time: Annotated[str | None, DATE_TIME] = None
    bound_pods: list[str] = field(default_factory=list, name="boundPods")
    """UIDs of the pods that have been bound, while the Statement has no outcome. Once it has one,
    all its pods are bound that are not in unboundPods."""
    unbound_pods: list[UnboundPod] = field(default_factory=list)
    """Pods that were given up."""


class BindRequestStatus(_Progress, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the binder did.

    `phase` is Succeeded or Failed when all Statements have ended, and Failed if one of them is.
    """

    statements: list[StatementStatus] = field(default_factory=list)
    bound_count: NonNegative = 0
    """How many pods have been bound."""


class StatementKey(NamedTuple):
    """Identifies a Statement, or a part of one that was split."""

    namespace: str
    statement: str
    """The id of the Statement."""
    part: int


class CommittedStatement(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """One Statement of a BindRequest, with the metadata of the whole. `BindRequest.each` makes it.

    Of a Statement that is split, it is one part.
    """

    spec: StatementSpec
    status: StatementStatus = field(default_factory=StatementStatus)
    siblings: tuple[str, ...] = ()
    """The ids of all Statements in the request, its own too."""
    is_withdrawn: bool = False
    """Whether the scheduler has withdrawn the Statement."""
    backoff_limit: int = 5
    fencing_token: int = 0

    @property
    def key(self) -> StatementKey:
        """Its identity among all Statements."""
        return StatementKey(self.metadata.namespace, self.spec.id, self.spec.part)

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for it."""
        return self.status.is_final

    def asks_for_the_same(self, other: "CommittedStatement") -> bool:
        """Whether the scheduler's part of `other`, another state of it, is the same."""
        return (
            self.spec == other.spec
            and self.is_withdrawn == other.is_withdrawn
            and self.backoff_limit == other.backoff_limit
            and self.fencing_token == other.fencing_token
        )

    def is_changed_in(self, other: "CommittedStatement") -> bool:
        """Whether `other`, a state of the same Statement, asks for something else.

        Withdrawing a neighbour changes the generation of the request, but not this Statement.
        """
        if self.metadata.generation == other.metadata.generation:
            return False
        return not self.asks_for_the_same(other)


class BindRequest(CustomResource, frozen=True, rename="camel", kw_only=True, gc=False):
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
    status: BindRequestStatus = field(default_factory=BindRequestStatus)

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for it."""
        return self.status.is_final

    @property
    def is_fence(self) -> bool:
        """Whether it only announces a fencing token, and carries no Statement."""
        return FENCE_LABEL in self.metadata.labels and not self.spec.statements

    def each(self) -> tuple[CommittedStatement, ...]:
        """Return its Statements; none if it is an announcement or malformed."""
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
