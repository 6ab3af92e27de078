"""The cluster as the scheduler knows it: the door through which every watch event comes in.

`apply` takes any kind in any order; what refers to something that is not known yet is kept and
completed when it comes. Between events the state is always consistent, so a session may borrow it
at any time. No I/O: problems with objects are collected in `problems` for the process to report.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bindery.api.bindrequest import BindRequestSpec
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.mistakes import mistaken_keys
from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.api.quantity import QuantityError
from bindery.api.times import seconds
from bindery.kube.budgets import DisruptionBudget
from bindery.kube.objects import (
    BindRequest,
    KubeObject,
    Meta,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
)
from bindery.kube.resources import Resource
from bindery.kube.store import Change, EventType
from bindery.scheduler.cache.aside import Aside, stand_ins
from bindery.scheduler.cache.budgets import Budgets
from bindery.scheduler.cache.defects import Defects, Stage, Subject
from bindery.scheduler.cache.failures import FailureMemory
from bindery.scheduler.cache.holds import Holds, RequestKey
from bindery.scheduler.cache.observers import Observe, Observers
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.cache.promises import Promises
from bindery.scheduler.cache.reading import job_key
from bindery.scheduler.cache.staleness import StalenessMemory
from bindery.scheduler.cache.tasks import TaskStore
from bindery.scheduler.cache.trails import Trails
from bindery.scheduler.model.jobs import Job, JobKey, Task, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.state import PlanState

_MOST_PROBLEMS = 1000
"""A process that does not lead keeps problems until it does."""
_MOST_MISTAKES = 5
"""How many wrong keys of a pod are named in its event."""
RUNS_ON_AFTER_S = 2.0
"""How long after its PodGroup a gang's pods may go before it is reported that they run on."""


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """Something wrong with an object, to be reported at that object."""

    api_version: str
    kind: str
    meta: Meta
    reason: str
    """One CamelCase word."""
    message: str


class Cluster:
    """Columns, jobs, requests and failure memory. `clock`: seconds since the epoch."""

    def __init__(self, configuration: SchedulerConfiguration, clock: Callable[[], float]) -> None:
        self._configuration = configuration
        self._clock = clock
        self.state = PlanState()
        self.holds = Holds()
        self.failures = FailureMemory(configuration.failed_node_cooldown_seconds)
        self.groups: dict[JobKey, PodGroup] = {}
        self.pods: dict[Uid, Pod] = {}
        """The pods that this scheduler plans and that are not bound: the status writer compares
        with what they say already."""
        self.queues: dict[str, Queue] = {}
        self.priority_classes = PriorityClasses()
        self._tasks = TaskStore(
            self.state,
            self.holds,
            configuration.scheduler_name,
            self.priority_classes,
            trusts_records=configuration.tenancy_policy_enforced,
        )
        self.commit_counts: dict[Uid, int] = {}
        """Gang or pod UID -> how many Statements have been committed for it."""
        self.problems: deque[ObjectProblem] = deque(maxlen=_MOST_PROBLEMS)
        self.defects = Defects()
        """Errors that nobody has foreseen, held to the objects that they are about."""
        self.aside = Aside()
        self.promises = Promises()
        self.staleness = StalenessMemory()
        self.trails = Trails()
        self.changed_jobs: set[JobKey] = set()
        """The gangs that may have to say something else; emptied by whoever has told them."""
        self.observers = Observers()
        self._deleted_groups: dict[JobKey, tuple[float, Meta]] = {}
        """Deleted PodGroup -> when it was seen to be deleted, and its metadata."""
        self.budgets = Budgets()

    def apply(self, change: Change[KubeObject]) -> bool:
        """Take in one watch event; kinds that only plugins know are for them.

        Returns:
            Whether a plan might come out otherwise now. Not so when it only shows what was planned
            being carried out, or that a node is still alive.
        """
        known, writes = self.observers.known(change.object), self._tasks.charges.writes
        try:
            is_news = self._tell_all(change)
        except Exception as error:
            is_half_done = self._tasks.charges.writes != writes
            self._set_aside(change, error, known)
            if is_half_done:
                self._tasks.recount()
            return True
        if self.aside:
            self.aside.drop(change.object)
        return is_news

    def observe(self, observers: Iterable[tuple[Sequence[Resource[Any]], Observe]]) -> None:
        """Tell `observers` of changes from now on, each of its kinds, and of what is there."""
        failed: list[tuple[KubeObject, Exception]] = []
        self.observers.replace(observers, lambda item, error: failed.append((item, error)))
        for item, error in failed:
            self._set_aside(Change(EventType.MODIFIED, item, item), error, None)

    def recount(self) -> None:
        """Work out sums from their parts after an error that may have left them half changed."""
        self._tasks.recount()

    def _tell_all(self, change: Change[KubeObject]) -> bool:
        concerns_filters = self.observers.tell(change)
        if concerns_filters:
            self.state.nodes.version += 1  # by which filters are cached
        return self._take_in(change) or concerns_filters

    def _set_aside(
        self, change: Change[KubeObject], error: Exception, known: KubeObject | None
    ) -> None:
        """Leave out the object of `change`, which could not be taken in, and say so at it."""
        item, meta = change.object, change.object.metadata
        kind = self.observers.resource(item)
        subject = Subject(kind.kind, meta.namespace, meta.name)
        text = self.defects.note(Stage.INTAKE, subject, error)
        why = f"the scheduler cannot take it in: {text}"
        self._withdraw(item)
        if change.type is EventType.DELETED:
            self.aside.drop(item)
            return
        self.problems.append(
            ObjectProblem(kind.api_version, kind.kind, meta, JobReason.INTERNAL_ERROR, why)
        )
        self.aside.put(item, why)
        for instead in stand_ins(item, known, why):
            try:
                self._tell_all(Change(EventType.ADDED, instead, None))
            except Exception as again:
                self.defects.note(Stage.INTAKE, subject, again)
                self._withdraw(instead)
            else:
                return

    def _withdraw(self, item: KubeObject) -> None:
        """Leave nothing of `item`, of which the handling failed halfway."""
        self.observers.withdraw(item)
        self.state.nodes.version += 1
        try:
            self._take_in(Change(EventType.DELETED, item, item))
        except Exception:
            if isinstance(item, Pod):
                self._tasks.purge(Uid(item.metadata.uid))
            self._tasks.recount()

    def _take_in(self, change: Change[KubeObject]) -> bool:
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            return self._apply_pod(item, gone)
        if isinstance(item, Node):
            version = self.state.nodes.version
            self._apply_node(item, gone or not self._in_pool(item))
            return self.state.nodes.version != version
        if isinstance(item, BindRequest):
            # Another pool's requests are its own scheduler's: its pods and nodes are not seen here.
            return self._apply_request(item, gone or not self._in_pool(item))
        if isinstance(item, PodGroup):
            self._apply_group(item, gone or not self._in_pool(item))
        elif isinstance(item, Queue):
            self._apply_queue(item, gone)
        elif isinstance(item, PriorityClass):
            if gone:
                self.priority_classes.remove(item.metadata.name)
            else:
                self.priority_classes.put(item)
            self._tasks.priority_class_changed(item.metadata.name)
        elif isinstance(item, DisruptionBudget):
            return self._apply_budget(item, gone)
        return True

    def plans(self, pod: Pod) -> bool:
        """Return whether this scheduler is to find a node for `pod`."""
        is_ours = pod.spec.scheduler_name == self._configuration.scheduler_name
        return is_ours and not pod.spec.node_name and self._in_pool(pod)

    def priority(self, job: Job) -> int:
        """Return the priority of `job`: of its class if there is one, else its pods' highest."""
        value = self.priority_classes.value(job.priority_class)
        return max(job.priorities(), default=0) if value is None else value

    def budgets_of(self, task: Task) -> tuple[DisruptionBudget, ...]:
        """Return the disruption budgets that count the pod of `task`, by name."""
        pod = self.observers.get(Pod, (task.namespace, task.name))
        labels = pod.metadata.labels if pod is not None else {}
        return self.budgets.covering(task.namespace, labels)

    def blocking_budget(self, task: Task) -> DisruptionBudget | None:
        """Return the first budget by which the pod of `task` may not be evicted now, if any.

        As of what the disruption controller has counted: the Eviction API may answer otherwise.
        """
        budgets = self.budgets_of(task)
        return next((each for each in budgets if each.status.disruptions_allowed <= 0), None)

    @property
    def budget_easings(self) -> int:
        """How often a disruption budget has allowed more evictions than before."""
        return self.budgets.easings

    def catch_up_on_budgets(self, easings: int) -> None:
        """Reconsider spared pods by the budgets that have allowed more since there were `easings`.

        They changed before it was known that an eviction was refused.
        """
        self._reconsider(self.budgets.eased_since(easings))

    @property
    def is_guarded(self) -> bool:
        """Whether the admission policy guards records, and the queues of PodGroups."""
        return self._configuration.tenancy_policy_enforced

    def unrecorded(self) -> list[Task]:
        """Return the bound pods that were assigned to another queue than is recorded on them."""
        return [self.state.tasks[uid] for uid in sorted(self._tasks.unrecorded)]

    def note_time(self, now: float) -> None:
        """Take note of what time alone changes: promises that end, pods stuck in deletion."""
        self._tasks.sweep_queues()
        self._tasks.note_time(now)
        self.promises.expire(now)
        self._report_orphans(now - RUNS_ON_AFTER_S)
        self._tasks.note_stuck(now - self._configuration.stuck_in_releasing_seconds)

    def _report_orphans(self, before: float) -> None:
        """Tell which pods run on although their PodGroup was deleted `before`."""
        due = [key for key, (deleted_at, _) in self._deleted_groups.items() if deleted_at <= before]
        for key in due:
            _, meta = self._deleted_groups.pop(key)
            job = self.state.jobs.get(key)
            count = job.charged.total() if job is not None and not job.exists else 0
            if job is not None and count:
                pods = "pod runs" if count == 1 else "pods run"
                text = f"{count} {pods} on, charged to queue {job.queue}: delete pods to end them"
                self.problems.append(
                    ObjectProblem(API_VERSION, "PodGroup", meta, "PodsRunOn", text)
                )

    # -- commits -------------------------------------------------------------------------------

    def assume(self, request: RequestKey, spec: BindRequestSpec, tasks: Sequence[Task]) -> None:
        """Count `tasks`, allocated by a Statement, as Binding for a request to be created."""
        nodes = self.state.nodes
        self.holds.assume(request, spec, self._clock())
        for task in tasks:
            self._tasks.adopt(task, nodes.name(task.row))
            self.promises.fulfil(task.job, task.uid)

    def evicting(self, task: Task, claimant: JobKey) -> None:
        """Count `task` as leaving: its eviction, for `claimant`, is about to be asked for."""
        self._tasks.evicting(task)
        if claimant != task.job:
            self.promises.make(claimant, self._clock())

    def not_evicted(self, uid: Uid) -> None:
        """Undo `evicting`: the eviction was refused."""
        self._tasks.not_evicted(uid)
        job = self._job_of(uid)
        if job is not None:
            self.changed_jobs.add(job)

    def forget(self, request: RequestKey) -> None:
        """Undo `assume`: the request could not be created."""
        for uid in self.holds.forget(request):
            self._tasks.refresh(uid)

    def release(self, pods: Iterable[Uid]) -> None:
        """Count `pods`, allocated by a Statement that no request will carry, as before it."""
        for uid in pods:
            self._tasks.refresh(uid)

    def next_commit(self, owner: Uid) -> int:
        """Return the number of the next commit for the gang or pod `owner`, and count it."""
        count = self.commit_counts.get(owner, 0) + 1
        self.commit_counts[owner] = count
        return count

    # -- kinds ---------------------------------------------------------------------------------

    def _in_pool(self, item: KubeObject) -> bool:
        return item.metadata.labels.get(NODE_POOL_LABEL, "") == self._configuration.node_pool

    def _apply_pod(self, pod: Pod, gone: bool) -> bool:
        uid = Uid(pod.metadata.uid)
        if not pod.spec.node_name and not self._in_pool(pod):
            gone = True
        self.changed_jobs.add(job_key(pod))
        self._note_loss(pod, gone)
        if gone:
            self.pods.pop(uid, None)
            self._tasks.remove_pod(uid)
            self.holds.settled.pop(uid, None)
            self.commit_counts.pop(uid, None)
            key = job_key(pod)
            if not key.is_group:
                self.failures.forget(key)
                self.promises.end(key)
            return True
        if pod.spec.node_name or pod.spec.scheduler_name != self._configuration.scheduler_name:
            self.pods.pop(uid, None)
        else:
            known = self.pods.get(uid)
            self._report_mistakes(pod, known)
            self._take_up_promise(pod, known)
            self.pods[uid] = pod
        return self._tasks.put_pod(pod)

    def _note_loss(self, pod: Pod, gone: bool) -> None:
        """Note that a gang has lost `pod`, which had not ended before."""
        task = self.state.tasks.get(Uid(pod.metadata.uid))
        if task is None or not task.job.is_group or task.status.has_ended:
            return
        if gone or pod.status.phase == "Failed":
            self.staleness.lost(task.job, pod, self._clock())

    def _report_mistakes(self, pod: Pod, known: Pod | None) -> None:
        """Warn at `pod` of keys that it may rely on and that nobody reads."""
        meta, old = pod.metadata, known.metadata if known is not None else Meta()
        if (meta.annotations, meta.labels) == (old.annotations, old.labels):
            return
        mistakes = mistaken_keys(meta.annotations, meta.labels)
        if mistakes:
            text = "; ".join(mistakes[:_MOST_MISTAKES])
            self.problems.append(ObjectProblem("v1", "Pod", meta, "UnknownKey", text))

    def _take_up_promise(self, pod: Pod, known: Pod | None) -> None:
        """Keep the place that another scheduler, which led before, has promised to `pod`."""
        uid, node_name = Uid(pod.metadata.uid), pod.status.nominated_node_name
        said = known.status.nominated_node_name if known is not None else ""
        if node_name and node_name != said and self.holds.get(uid) is None:
            self.promises.take_up(job_key(pod), uid, node_name, self._clock())

    def _apply_node(self, node: Node, gone: bool) -> None:
        name, nodes = node.metadata.name, self.state.nodes
        known = name in nodes.rows
        if gone:
            if known:
                self._tasks.charges.node_goes(name)
                nodes.remove(name)
                self._tasks.resize_shares(nodes.smallest_device_mib())
            return
        if known and nodes.changes_devices(node):
            self._tasks.charges.node_goes(name)
            known = False
        try:
            row = nodes.put(node)
        except QuantityError as error:
            self.problems.append(
                ObjectProblem("v1", "Node", node.metadata, "InvalidNode", str(error))
            )
            self._apply_node(node, gone=True)
            return
        if not known:
            self._tasks.charges.node_came(name, row)
            self._tasks.resize_shares(nodes.smallest_device_mib())

    def _apply_group(self, group: PodGroup, gone: bool) -> None:
        key = JobKey(group.metadata.namespace, group.metadata.name, True)
        if gone:
            self.trails.forget(key)
            self.staleness.forget(key)
            self.changed_jobs.discard(key)
            if self.groups.pop(key, None) is not None:
                self._deleted_groups[key] = (self._clock(), group.metadata)
                self._tasks.remove_group(key)
                self.promises.end(key)
                self.failures.forget(key)
                self.commit_counts.pop(Uid(group.metadata.uid), None)
            return
        self.groups[key] = group
        self._tasks.put_group(group)
        self.changed_jobs.add(key)

    def _apply_queue(self, queue: Queue, gone: bool) -> None:
        name = queue.metadata.name
        if gone:
            if self.queues.pop(name, None) is not None:
                self.state.queues.remove(name)
            return
        self.queues[name] = queue
        self.state.queues.put(queue)

    def _apply_budget(self, budget: DisruptionBudget, gone: bool) -> bool:
        """Return whether pods whose eviction was refused may be chosen again."""
        return self._reconsider(self.budgets.remove(budget) if gone else self.budgets.put(budget))

    def _reconsider(self, states: Collection[DisruptionBudget]) -> bool:
        freed = [uid for uid in self.failures.spared(self._clock()) if self._counts(states, uid)]
        self.failures.reconsider(freed)
        return bool(freed)

    def _counts(self, budgets: Iterable[DisruptionBudget], uid: Uid) -> bool:
        task = self.state.tasks.get(uid)
        if task is None:
            return False
        pod = self.observers.get(Pod, (task.namespace, task.name))
        labels = pod.metadata.labels if pod is not None else {}
        return any(budget.covers(task.namespace, labels) for budget in budgets)

    def _apply_request(self, request: BindRequest, gone: bool) -> bool:
        if gone:
            changed = self.holds.remove(request)
            for bound in request.status.bound_pods:
                if Uid(bound) not in self.state.tasks:
                    self.holds.settle(Uid(bound))
        else:
            self._count_commit(request)
            known = self.holds.requests.get(request.key)
            if request.is_final and (known is None or not known.is_final):
                failed_at = seconds(request.status.completion_time) or self._clock()
                self.failures.note(request, self._job_of, failed_at)
            changed = self.holds.put(request)
        moved = [uid for uid in changed if self._tasks.refresh(uid)]
        # Also while another process leads, and no cycle takes note of the time.
        self._tasks.note_time(self._clock())
        jobs = (self._job_of(uid) for uid in moved)
        self.changed_jobs.update(job for job in jobs if job is not None)
        return bool(moved)

    def _job_of(self, uid: str) -> JobKey | None:
        task = self.state.tasks.get(Uid(uid))
        return task.job if task is not None else None

    def _count_commit(self, request: BindRequest) -> None:
        owner, _, count = request.spec.statement.id.rpartition("-")
        if owner and count.isdecimal():
            uid = Uid(owner)
            self.commit_counts[uid] = max(self.commit_counts.get(uid, 0), int(count))
