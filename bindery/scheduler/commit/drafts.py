"""Drafts of BindRequests from committed Statements.

The Statement of a gang becomes one draft (or several parts, above `maxPods`), so one write commits
it, whole or not at all. Several drafts may share that write (`backlog.py`). Extra and independent
pods of a cycle are collected: many of them are merged into one Statement with `minBound` 0, in
which each pod succeeds or fails alone. If they depend on a gang that is not bound yet, it names the
gang's Statement as prerequisite.

The name of a draft is made of the UID of the gang (or first pod) and its number of commits. It is
the same in each attempt to write the request. The id of its Statement has the fencing token too.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bindery.api import keptroom
from bindery.api.bindrequest import ReceivedResourceType
from bindery.api.configuration import BindRequestConfiguration
from bindery.api.gpushare import WHOLE, GpuShare
from bindery.api.keptroom import KeptRoom
from bindery.api.names import (
    API_VERSION,
    MIG_PREFIX,
    NODE_POOL_LABEL,
    POD_NAME_LABEL,
    SELECTED_NODE_LABEL,
    STATEMENT_LABEL,
)
from bindery.kube.objects.bindrequests import (
    PodBinding,
    PodGroupReference,
    ReceivedGPU,
    StatementKey,
    StatementSpec,
)
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.commit.precedence import Precedence
from bindery.scheduler.ledgers.base import Operation, OperationKind
from bindery.scheduler.model.devices import DeviceTable
from bindery.scheduler.model.jobs import Job, JobKey, Task, Uid
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit
from bindery.scheduler.plugins.interface.state import BindData, BindRequestMutation

_NAME_LENGTH = 200
"""Maximum length of the owner's name in a request's name; the API server allows 253 in total."""
_LABEL_LENGTH = 63
_ROOM_RECORDS = 3
"""How many pods of a gang record the room of its later stages: one of them may be replaced."""


@dataclass(frozen=True)
class Owner:
    """The object that a request is named after; also its owner reference if `kind` is set."""

    name: str
    uid: Uid
    api_version: str = ""
    kind: str = ""

    def to_reference(self) -> dict[str, str]:
        """Return the owner reference."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
        }


class _MergeKey(NamedTuple):
    """Key of single pods that may share a request."""

    namespace: str
    group: JobKey | None
    """Their PodGroup; None if they have none."""
    queue: str
    after: str | None
    """Their prerequisite Statement; None if they have none."""


@dataclass(frozen=True)
class _Statement:
    """The common fields of the parts of one Statement."""

    job: Job
    allocations: Sequence[Operation]
    after: str | None
    """Its prerequisite Statement; None if it has none."""
    min_bound: int | None = None


@dataclass(frozen=True)
class StatementDraft:
    """A Statement, or a part of one that is split, and the metadata of its own BindRequest."""

    namespace: str
    name: str
    spec: StatementSpec
    backoff_limit: int
    fencing_token: int
    labels: dict[str, str]
    annotations: dict[str, str]
    owner: Owner
    tasks: tuple[Task, ...]

    @property
    def key(self) -> StatementKey:
        """The identity of its Statement."""
        return StatementKey(self.namespace, self.spec.id, self.spec.part)

    def metadata(self) -> dict[str, object]:
        """Return the metadata of a request with this Statement alone."""
        metadata: dict[str, object] = {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
        }
        if self.annotations:
            metadata["annotations"] = self.annotations
        if self.owner.kind:
            metadata["ownerReferences"] = [self.owner.to_reference()]
        return metadata


class Committer:
    """Turns the commits of one session into drafts, and their pods to Binding in the cluster."""

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        configuration: BindRequestConfiguration,
        node_pool: str,
        fencing_token: int,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._configuration = configuration
        self._node_pool = node_pool
        self._fencing_token = fencing_token
        self._precedence = Precedence(cluster.holds)
        self._singles: defaultdict[_MergeKey, list[Operation]] = defaultdict(list)
        self._open: dict[Uid, Task] = {}
        """Pods of committed Statements that are in no draft yet."""
        self._bindings: dict[Uid, PodBinding] = {}
        """The bindings of collected single pods."""

    def add(self, commit: Commit) -> Iterator[StatementDraft]:
        """Add a committed Statement; yield the requests that are complete now."""
        allocations = [o for o in commit.operations if o.kind is OperationKind.ALLOCATE]
        if not allocations:
            return
        self._open.update((operation.task.uid, operation.task) for operation in allocations)
        job, tasks = commit.job, [operation.task for operation in allocations]
        after = self._precedence.needed_before(job, tasks)
        if commit.is_gang or self._precedence.completes(job, tasks):
            statement = _Statement(job, allocations, after)
            identity = yield from self._drafts(statement)
            self._precedence.note(job, tasks, identity)
            return
        group = job.key if job.key.is_group else None
        key = _MergeKey(job.key.namespace, group, job.queue, after)
        # Plugins run here, job by job: later an error of one job would fail a merged request.
        for operation in allocations:
            self._bindings[operation.task.uid] = self._pod(operation)
        singles = self._singles[key]
        singles.extend(allocations)
        if len(singles) >= self._configuration.max_pods:
            del self._singles[key]
            yield from self._single_drafts(singles, after)

    def flush(self) -> Iterator[StatementDraft]:
        """Yield requests for the collected single pods."""
        while self._singles:
            key, singles = self._singles.popitem()
            first = self._session.state.jobs[singles[0].task.job]
            with self._session.guarded(first):
                yield from self._single_drafts(singles, key.after)

    def release(self, commit: Commit) -> None:
        """Release the pods of `commit` that are in no draft; they are planned again."""
        uids = [o.task.uid for o in commit.operations if o.task.uid in self._open]
        for singles in self._singles.values():
            singles[:] = [operation for operation in singles if operation.task.uid not in uids]
        self._cluster.release(uids)
        for uid in uids:
            del self._open[uid]

    def abandon(self) -> None:
        """Release the pods that have no request after an error or an early end of the cycle."""
        self._cluster.release(self._open)
        self._open.clear()

    def _single_drafts(
        self, singles: Sequence[Operation], after: str | None
    ) -> Iterator[StatementDraft]:
        jobs = self._session.state.jobs
        if len(singles) > self._configuration.merge_above and self._configuration.max_pods > 1:
            yield from self._drafts(_Statement(jobs[singles[0].task.job], singles, after, 0))
            return
        for operation in singles:
            yield from self._drafts(_Statement(jobs[operation.task.job], [operation], after))

    def _drafts(self, statement: _Statement) -> Generator[StatementDraft, None, str]:
        """Yield the parts of one Statement and count its pods as Binding; return its id."""
        job, allocations = statement.job, statement.allocations
        owner = _owner(job, allocations, is_merged=statement.min_bound is not None)
        count = self._cluster.commit_counts.next(owner.uid)
        identity = f"{owner.uid}-{count}"
        if self._fencing_token:  # so two leaders never give one id to two Statements
            identity += f".{self._fencing_token}"
        size = self._configuration.max_pods
        chunks = [allocations[i : i + size] for i in range(0, len(allocations), size)]
        room = self._session.memory.kept_rooms(job)
        for part, chunk in enumerate(chunks):
            # A cut name may end with ".", and ".-" is not valid in a name.
            name = f"{owner.name[:_NAME_LENGTH].rstrip('.-')}-{owner.uid[:8]}-{count}"
            if len(chunks) > 1:
                name += f"-p{part}"
            tasks = tuple(operation.task for operation in chunk)
            draft = StatementDraft(
                namespace=tasks[0].namespace,
                name=name,
                spec=StatementSpec(
                    id=identity,
                    part=part,
                    parts=len(chunks),
                    after=statement.after,
                    pods=[
                        self._pod(operation, room if not part and index < _ROOM_RECORDS else None)
                        for index, operation in enumerate(chunk)
                    ],
                    pod_group=PodGroupReference(name=job.key.name, uid=job.uid)
                    if job.key.is_group
                    else None,
                    queue=job.queue,
                    min_bound=statement.min_bound,
                    priority=self._priority(chunk),
                ),
                backoff_limit=self._configuration.backoff_limit,
                fencing_token=self._fencing_token,
                labels=self._labels(tasks, identity),
                annotations=self._annotations(chunk),
                owner=owner,
                tasks=tasks,
            )
            # Before the request exists: the next session must not use the same room again.
            self._cluster.assume(draft.key, draft.spec, tasks)
            for task in tasks:
                del self._open[task.uid]
            yield draft
        return identity

    def _priority(self, operations: Sequence[Operation]) -> int:
        """Return the highest priority of the jobs of `operations`."""
        jobs = {operation.task.job for operation in operations}
        return max(self._cluster.priority(self._session.state.jobs[key]) for key in jobs)

    def _pod(self, operation: Operation, room: KeptRoom | None = None) -> PodBinding:
        """Return the binding of a pod. `room`: kept for later stages, to be recorded on the pod."""
        task, session = operation.task, self._session
        if task.uid in self._bindings:
            return self._bindings.pop(task.uid)
        devices = session.state.nodes.devices
        data = {
            plugin.name: given
            for plugin in session.plugins.of(BindData)
            if (given := plugin.bind_data(session, task, operation.row)) is not None
        }
        if room is not None:
            data[keptroom.PLUGIN_DATA] = room.as_data()
        share, groups = task.shape.request.share, devices.groups_of(task.uid)
        return PodBinding(
            pod_name=task.name,
            pod_uid=task.uid,
            selected_node=session.state.nodes.name(operation.row),
            non_preemptible=not task.is_preemptible,
            received_resource_type=self._received_type(task, groups),
            received_gpu=None if share is None else _received(devices, share, operation.row),
            selected_gpu_groups=list(groups),
            plugin_data=data,
        )

    def _received_type(self, task: Task, groups: Sequence[str]) -> ReceivedResourceType:
        if groups:
            return ReceivedResourceType.FRACTION
        names = self._session.state.axis.names
        if any(names[index].startswith(MIG_PREFIX) for index in task.shape.request.indices):
            return ReceivedResourceType.MIG_INSTANCE
        return ReceivedResourceType.REGULAR

    def _labels(self, tasks: tuple[Task, ...], statement: str) -> dict[str, str]:
        labels = {STATEMENT_LABEL: statement}
        if self._node_pool:
            labels[NODE_POOL_LABEL] = self._node_pool
        if len(tasks) == 1:
            node = self._session.state.nodes.name(tasks[0].row)
            labels[POD_NAME_LABEL] = tasks[0].name[:_LABEL_LENGTH].rstrip(".-")
            labels[SELECTED_NODE_LABEL] = node[:_LABEL_LENGTH].rstrip(".-")
        return labels

    def _annotations(self, operations: Sequence[Operation]) -> dict[str, str]:
        annotations: dict[str, str] = {}
        for plugin in self._session.plugins.of(BindRequestMutation):
            annotations.update(plugin.annotations(self._session, operations))
        return annotations


def _received(devices: DeviceTable, share: GpuShare, row: int) -> ReceivedGPU:
    portion = devices.portion(share, row) / WHOLE
    return ReceivedGPU(count=share.devices, portion=f"{portion:.2f}")


def _owner(job: Job, allocations: Sequence[Operation], *, is_merged: bool) -> Owner:
    """Return the object that a request is named after: the PodGroup or the first pod."""
    task = allocations[0].task
    if job.key.is_group:
        return Owner(job.key.name, job.uid, API_VERSION, "PodGroup")
    if is_merged:  # no owner reference: the request has pods of several owners
        return Owner(f"{task.name}-and-others", task.uid)
    return Owner(task.name, task.uid, "v1", "Pod")
