"""BindRequests, as they are watched: stored with one or more Statements, read one by one.

Everything but the edges works with `CommittedStatement`, one Statement with all that concerns it.
The edges are: `BindRequest.each` where requests are read, the scheduler's writer of requests, and
the binder's writer of status. Structs as in `watched`.
"""

from typing import Any, Final, NamedTuple

import msgspec

from bindery.api.names import FENCE_LABEL
from bindery.api.states import MALFORMED, Phase
from bindery.kube.objects.watched import KubeObject


class ReceivedGPU(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    count: int = 0
    portion: str = "1.00"


class PodBinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pod_name: str
    pod_uid: str = msgspec.field(name="podUID")
    selected_node: str
    non_preemptible: bool = False
    received_resource_type: str = "Regular"
    received_gpu: ReceivedGPU | None = msgspec.field(default=None, name="receivedGPU")
    selected_gpu_groups: list[str] = msgspec.field(default_factory=list, name="selectedGPUGroups")
    plugin_data: dict[str, Any] = msgspec.field(default_factory=dict)


class PodGroupReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    uid: str


class StatementSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    id: str
    part: int = 0
    parts: int = 1
    after: str | None = None
    pods: list[PodBinding]
    pod_group: PodGroupReference | None = None
    queue: str = ""
    min_bound: int | None = None
    priority: int = 0


class UnboundPod(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pod_name: str
    pod_uid: str = msgspec.field(name="podUID")
    node: str
    reason: str
    message: str = ""


class _Progress(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    failed_attempts: int = 0
    completion_time: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for what this is the status of."""
        return self.phase in _FINAL_PHASES


class StatementStatus(_Progress, frozen=True, rename="camel", kw_only=True, gc=False):
    id: str = ""
    """That of the Statement; "" before the binder has written its status."""
    next_attempt_time: str | None = None
    bound_pods: list[str] = msgspec.field(default_factory=list)
    unbound_pods: list[UnboundPod] = msgspec.field(default_factory=list)


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
    status: StatementStatus = msgspec.field(default_factory=StatementStatus)
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


class BindRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    statements: list[StatementSpec] = msgspec.field(default_factory=list)
    withdrawn: list[str] = msgspec.field(default_factory=list)
    backoff_limit: int = 5
    fencing_token: int = 0


class BindRequestStatus(_Progress, frozen=True, rename="camel", kw_only=True, gc=False):
    statements: list[StatementStatus] = msgspec.field(default_factory=list)


class BindRequest(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """One or more Statements, or the announcement of a fencing token without any."""

    spec: BindRequestSpec
    status: BindRequestStatus = msgspec.field(default_factory=BindRequestStatus)

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
