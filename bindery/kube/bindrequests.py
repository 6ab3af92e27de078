"""BindRequests, as they are watched: stored with one or more Statements, read one by one.

Everything but the edges works with `CommittedStatement`, one Statement with all that concerns it.
The edges are: `BindRequest.each` where requests are read, the scheduler's writer of requests, and
the binder's writer of status. Requests of the old form carry one Statement in fields of the spec.
Structs as in `objects`.
"""

from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from bindery.api.names import FENCE_LABEL
from bindery.api.states import MALFORMED, Phase
from bindery.kube.objects import KubeObject

StructT = TypeVar("StructT", bound=msgspec.Struct)


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


class StatementReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    id: str
    part: int = 0
    parts: int = 1
    after: str | None = None


class OldFormSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One Statement, in the old form."""

    pods: list[PodBinding]
    statement: StatementReference
    pod_group: PodGroupReference | None = None
    queue: str = ""
    min_bound: int | None = None
    priority: int = 0
    backoff_limit: int = 5
    fencing_token: int = 0


class UnboundPod(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pod_name: str
    pod_uid: str = msgspec.field(name="podUID")
    node: str
    reason: str
    message: str = ""


class OldFormStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What became of one Statement, in the old form."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    failed_attempts: int = 0
    next_attempt_time: str | None = None
    completion_time: str | None = None
    bound_pods: list[str] = msgspec.field(default_factory=list)
    unbound_pods: list[UnboundPod] = msgspec.field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for what this is the status of."""
        return self.phase in _FINAL_PHASES


class StatementKey(NamedTuple):
    """Identifies a Statement, or a part of one that was split."""

    namespace: str
    statement: str
    """The id of the Statement."""
    part: int


class _Request(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """What a whole request and one of its Statements have in common."""

    status: OldFormStatus = msgspec.field(default_factory=OldFormStatus)

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for it."""
        return self.status.is_final

    @property
    def is_fence(self) -> bool:
        """Whether it only announces a fencing token, and carries no Statement."""
        return FENCE_LABEL in self.metadata.labels


class CommittedStatement(_Request, frozen=True, rename="camel", kw_only=True, gc=False):
    """One Statement of a BindRequest, with the metadata of the whole.

    `BindRequest.each` makes it, also from requests of the old form, which have its fields.
    """

    spec: OldFormSpec
    siblings: tuple[str, ...] = ()
    """The ids of all Statements in the request, its own too; none for a request of the old form."""
    is_withdrawn: bool = False
    """Whether the scheduler has withdrawn the Statement."""

    @property
    def key(self) -> StatementKey:
        """Its identity among all Statements."""
        statement = self.spec.statement
        return StatementKey(self.metadata.namespace, statement.id, statement.part)

    def is_changed_in(self, other: "CommittedStatement") -> bool:
        """Whether `other`, a state of the same request, asks for something else.

        Withdrawing a neighbour changes the generation of the request, but not this Statement.
        """
        if self.metadata.generation == other.metadata.generation:
            return False
        return (self.spec, self.is_withdrawn) != (other.spec, other.is_withdrawn)


class StatementSpec(StatementReference, frozen=True, rename="camel", kw_only=True, gc=False):
    pods: list[PodBinding]
    pod_group: PodGroupReference | None = None
    queue: str = ""
    min_bound: int | None = None
    priority: int = 0


class BindRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    statements: list[StatementSpec] = msgspec.field(default_factory=list)
    withdrawn: list[str] = msgspec.field(default_factory=list)
    backoff_limit: int = 5
    pods: list[PodBinding] = msgspec.field(default_factory=list)
    pod_group: PodGroupReference | None = None
    queue: str = ""
    statement: StatementReference | None = None
    min_bound: int | None = None
    priority: int = 0
    fencing_token: int = 0


class StatementStatus(OldFormStatus, frozen=True, rename="camel", kw_only=True, gc=False):
    id: str


class BindRequestStatus(OldFormStatus, frozen=True, rename="camel", kw_only=True, gc=False):
    statements: list[StatementStatus] = msgspec.field(default_factory=list)


class BindRequest(_Request, frozen=True, rename="camel", kw_only=True, gc=False):
    """A BindRequest as the API server stores it, with one or more Statements."""

    spec: BindRequestSpec
    status: BindRequestStatus = msgspec.field(default_factory=BindRequestStatus)

    def each(self) -> tuple[CommittedStatement, ...]:
        """Return its Statements; none if it has neither form."""
        if self.spec.statements:
            return self._each_statement()
        statement = self.spec.statement
        if statement is None:
            return ()
        alone = CommittedStatement(
            metadata=self.metadata,
            spec=_narrowed(OldFormSpec, self.spec),
            status=_narrowed(OldFormStatus, self.status),
            is_withdrawn=statement.id in self.spec.withdrawn,
        )
        return (alone,)

    def _each_statement(self) -> tuple[CommittedStatement, ...]:
        spec = self.spec
        statuses = {status.id: status for status in self.status.statements}
        siblings = tuple(each.id for each in spec.statements)
        return tuple(
            CommittedStatement(
                metadata=self.metadata,
                spec=OldFormSpec(
                    pods=each.pods,
                    statement=_narrowed(StatementReference, each),
                    pod_group=each.pod_group,
                    queue=each.queue,
                    min_bound=each.min_bound,
                    priority=each.priority,
                    backoff_limit=spec.backoff_limit,
                    fencing_token=spec.fencing_token,
                ),
                status=_status_of(each, statuses.get(each.id), self.status),
                siblings=siblings,
                is_withdrawn=each.id in spec.withdrawn,
            )
            for each in spec.statements
        )


def _status_of(
    statement: StatementSpec, status: StatementStatus | None, whole: BindRequestStatus
) -> OldFormStatus:
    """Return the status of one Statement. `whole`: the status of its request."""
    read = _narrowed(OldFormStatus, status) if status is not None else OldFormStatus()
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


def _narrowed(kind: type[StructT], source: msgspec.Struct) -> StructT:
    """Return the fields that `kind` has of `source`."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__})


_FINAL_PHASES: Final = frozenset(phase.value for phase in Phase if phase.is_final)
