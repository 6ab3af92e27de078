"""The cluster as the scheduler sees it: applies every watch event.

`apply` takes any kind in any order: an object may refer to another that arrives later. Between
events the state is always consistent, so a session may borrow it at any time. No I/O: problems
with objects are collected in `problems`, and the process reports them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.gpus import GpuResources
from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.api.quantity import QuantityError
from bindery.api.times import seconds
from bindery.kube.objects.bindrequests import (
    BindRequest,
    CommittedStatement,
    StatementKey,
    StatementSpec,
)
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Meta, Namespace, Node, Pod, PriorityClass
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.budgets import Budgets
from bindery.scheduler.cache.contests import Contests
from bindery.scheduler.cache.defects import Defects
from bindery.scheduler.cache.eviction_history import EvictionHistory
from bindery.scheduler.cache.failures import FailureMemory
from bindery.scheduler.cache.holds import Holds, carried
from bindery.scheduler.cache.idlegpus import IdleGpus
from bindery.scheduler.cache.intake import Intake
from bindery.scheduler.cache.members import JobMembership, Members
from bindery.scheduler.cache.memories import ClusterMemory, CommitCounts
from bindery.scheduler.cache.namespaces import Namespaces
from bindery.scheduler.cache.news import is_news_of_group, is_news_of_queue
from bindery.scheduler.cache.observers import Observe, Observers
from bindery.scheduler.cache.orphans import Orphans
from bindery.scheduler.cache.pinning import Pinning
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.cache.problems import mistakes
from bindery.scheduler.cache.promises import Promises
from bindery.scheduler.cache.rule_costs import RuleCosts
from bindery.scheduler.cache.stage_rooms import StageRooms
from bindery.scheduler.cache.staleness import StalenessMemory
from bindery.scheduler.cache.starting import Starting
from bindery.scheduler.cache.tasks import TaskStore
from bindery.scheduler.model.jobs import Job, JobKey, Task, Uid
from bindery.scheduler.model.node_refusals import offer
from bindery.scheduler.model.nodereading import is_ready
from bindery.scheduler.model.problems import ObjectProblem
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.state import PlanState

_MOST_PROBLEMS = 1000
"""A process that does not lead collects problems until it leads."""


class Cluster:
    """Columns, jobs, requests and memories. `clock` returns seconds since the epoch."""

    def __init__(self, configuration: SchedulerConfiguration, clock: Callable[[], float]) -> None:
        self._configuration = configuration
        self._clock = clock
        self.state = PlanState(ResourceAxis(GpuResources(*configuration.counted_as_gpus)))
        self.holds = Holds()
        self.failures = FailureMemory(
            configuration.failed_node_cooldown_seconds, configuration.attempt_seconds
        )
        self.groups: dict[JobKey, PodGroup] = {}
        self.pods: dict[Uid, Pod] = {}
        """The unbound pods of this scheduler; the status writer compares with their conditions."""
        self.queues: dict[str, Queue] = {}
        self.priority_classes = PriorityClasses()
        self.namespaces = Namespaces()
        self.defects = Defects()
        """Unexpected errors, with the objects that caused them."""
        self._members = Members(waits_for_groups=configuration.grouper.wait_for_groups)
        self._tasks = TaskStore(
            self.state,
            self.holds,
            self._members,
            self.priority_classes,
            self.namespaces,
            self.defects,
            configuration,
        )
        self._pinning = Pinning(
            self.state, self._tasks, self.priority_classes, self.namespaces, self._report_owner
        )
        self.future_task = self._tasks.futures.task
        self.commit_counts = CommitCounts()
        self.problems: deque[ObjectProblem] = deque(maxlen=_MOST_PROBLEMS)
        self.promises = Promises()
        self.staleness = StalenessMemory()
        self.eviction_history = EvictionHistory()
        self.stage_rooms = StageRooms()
        self.changed_jobs: set[JobKey] = set()
        """The gangs whose status may have changed; the loop empties the set."""
        self.observers = Observers()
        self._contests = Contests(partial(self.report_group, "PodsTaken"))
        self._orphans = Orphans()
        self.starting, self._idle = Starting(self.state.tasks), IdleGpus(self.state)
        self.budgets = Budgets(self._pod_of)
        self._costs = RuleCosts(self.problems)
        self._tasks.shapes.refusals = self._costs.problems
        self._of_jobs: tuple[ClusterMemory[JobKey], ...] = (
            self.failures, self.promises, self.staleness,
            self.eviction_history, self.stage_rooms, self._contests,
        )  # fmt: skip
        """The memories by job; each also forgets a single pod as a job."""
        self._of_pods: tuple[ClusterMemory[Uid], ...] = (
            self.starting, self._idle, self.commit_counts,
        )  # fmt: skip
        """The memories by UID of a pod."""
        self.intake = Intake(
            self._take_in,
            self.state.nodes,
            self._tasks,
            self.observers,
            self.defects,
            self.problems,
        )
        self.quarantine = self.intake.quarantine

    def apply(self, change: Change[KubeObject]) -> bool:
        """Apply one watch event; kinds of plugins go only to the observers.

        Return whether a plan may change: not by an expected binding, or a node's heartbeat.
        """
        return self.intake.apply(self._costs.admit(change))

    def observe(self, observers: Iterable[tuple[Sequence[Resource[Any]], Observe]]) -> None:
        """Replace the observers of changes, and pass the existing objects to the new ones."""
        self.intake.observe(observers)

    def recount(self) -> None:
        """Compute all sums again, after an error that may have left them half changed."""
        self._tasks.recount()

    def _take_in(self, change: Change[KubeObject]) -> bool:
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            return self._apply_pod(item, gone)
        if isinstance(item, Node):
            version = self.state.nodes.version
            self._apply_node(item, gone or not self._in_pool(item))
            return self.state.nodes.version != version
        if isinstance(item, CommittedStatement):
            # Requests of another pool belong to its scheduler; its nodes have no row here.
            return self._apply_statement(item, gone or not self._in_pool(item))
        if isinstance(item, PodGroup):
            known = self.groups.get(JobKey(item.metadata.namespace, item.metadata.name, True))
            self._apply_group(item, gone or not self._in_pool(item))
            return gone or is_news_of_group(known, item)
        is_news = not isinstance(item, BindRequest)  # its Statements follow one by one
        if isinstance(item, Queue):
            is_news = gone or is_news_of_queue(self.queues.get(item.metadata.name), item)
            self._apply_queue(item, gone)
        elif isinstance(item, PriorityClass):
            self.priority_classes.put(item, gone=gone)
            self._tasks.priority_class_changed(item.metadata.name)
        elif isinstance(item, Namespace):
            self._apply_namespace(item, gone)
        elif isinstance(item, DisruptionBudget):
            return self._apply_budget(item, gone)
        elif isinstance(item, ResourceClaim):
            self._tasks.reshape(self._tasks.shapes.claim_changed(item, gone=gone))
        return is_news

    def job_key(self, pod: Pod) -> JobKey:
        """Return the job of `pod`: its PodGroup, or the pod itself."""
        return self._members.place(pod).job

    def plans(self, pod: Pod) -> bool:
        """Return whether this scheduler has to find a node for `pod`."""
        is_ours = pod.spec.scheduler_name == self._configuration.scheduler_name
        return is_ours and not pod.spec.node_name and self._in_pool(pod)

    def priority(self, job: Job) -> int:
        """Return the priority of `job`: that of its class, else the highest of its pods."""
        value = self.priority_classes.value(job.priority_class)
        if value is None:
            value = max([task.priority for task in job.tasks.values()], default=0)
        return value

    def catch_up_on_budgets(self, easings: int) -> None:
        """Allow evictions under the budgets that changed since `easings` had the given value."""
        self._reconsider(self.budgets.eased_since(easings))

    @property
    def is_guarded(self) -> bool:
        """Whether the admission policy guards records, and the queues of PodGroups."""
        return self._configuration.tenancy_policy_enforced

    def unrecorded(self) -> list[Task]:
        """Return the bound pods whose record is not what they are charged as."""
        return [self.state.tasks[uid] for uid in sorted(self._tasks.unrecorded)]

    def settle_preemptibility(self) -> None:
        """Let bound pods count as preemptible or not as their owners ask, if they may."""
        self._pinning.settle()

    def note_time(self, now: float) -> None:
        """Apply the changes that time alone makes: promises end, pods get stuck in deletion."""
        self._tasks.sweep_queues()
        for change in self._costs.due():
            self.intake.apply(change)
        self._tasks.reshape(self._tasks.shapes.due())
        self._end_holds(now)
        self.changed_jobs.update(self.starting.late(now), self._idle.renew(now))
        self.promises.expire(now)
        self.failures.expire(now)
        for meta, text in self._orphans.due(self.state.jobs, now):
            self.report_group("PodsRunOn", meta, text)
        stuck_before = now - self._configuration.stuck_in_releasing_seconds
        self.changed_jobs.update(self._tasks.note_stuck(stuck_before))

    def report_group(self, reason: str, meta: Meta, text: str) -> None:
        """Report `text` in an event at a PodGroup."""
        self.problems.append(ObjectProblem(API_VERSION, "PodGroup", meta, reason, text))

    def _report_owner(self, task: Task, reason: str, text: str) -> None:
        """Report `text` in an event at the PodGroup of `task`, or at a pod without PodGroup."""
        group, pod = self.groups.get(task.job), self._pod_of(task)
        if group is not None:
            self.report_group(reason, group.metadata, text)
        elif pod is not None:
            self.problems.append(ObjectProblem("v1", "Pod", pod.metadata, reason, text))

    # -- commits -------------------------------------------------------------------------------

    def assume(self, statement: StatementKey, spec: StatementSpec, tasks: Sequence[Task]) -> None:
        """Count `tasks`, allocated by a Statement, as Binding before their request is created."""
        self.holds.assume(statement, spec, self._clock())
        for task in tasks:
            self._tasks.adopt(task, self.state.nodes.name(task.row))
            self.promises.fulfil(task.job, task.uid)

    def evicting(self, task: Task, claimant: JobKey) -> None:
        """Count `task` as releasing, as its eviction for `claimant` is about to be requested."""
        self.eviction_history.expect(task.job, self.state.jobs[task.job].placed.total)
        self._tasks.evicting(task)
        if claimant != task.job:  # the rest of a broken gang is evicted for no other job
            self.promises.make(claimant, self._clock())

    def not_evicted(self, uid: Uid) -> None:
        """Undo `evicting`: the eviction was refused."""
        self._tasks.not_evicted(uid)
        job = self._job_of(uid)
        if job is not None:
            self.changed_jobs.add(job)

    def forget(self, statement: StatementKey) -> None:
        """Undo `assume`: the request could not be created."""
        for uid in self.holds.forget(statement):
            self._tasks.refresh(uid)

    def release(self, pods: Iterable[Uid]) -> None:
        """Restore `pods`, allocated by a Statement that will have no request."""
        for uid in pods:
            self._tasks.refresh(uid)

    # -- kinds ---------------------------------------------------------------------------------

    def _in_pool(self, item: KubeObject) -> bool:
        return item.metadata.labels.get(NODE_POOL_LABEL, "") == self._configuration.node_pool

    def _apply_pod(self, pod: Pod, gone: bool) -> bool:
        uid = Uid(pod.metadata.uid)
        # A bound pod is kept whatever its pool: it may use room on this pool's nodes.
        gone = gone or not (pod.spec.node_name or self._in_pool(pod))
        self.staleness.saw(pod, self.state.tasks.get(uid), self._clock(), gone=gone)
        is_news = self._tasks.note_nomination(pod, gone=gone)
        if gone:
            self._pod_gone(uid, pod)
            return True
        self._members.put_pod(pod)
        self._note_place(uid, pod, self._members.place(pod))
        if pod.spec.node_name or pod.spec.scheduler_name != self._configuration.scheduler_name:
            self.pods.pop(uid, None)
        else:
            known = self.pods.get(uid)
            self.problems.extend(mistakes(pod, known))
            self._take_up_promise(pod, known)
            self.pods[uid] = pod
        is_news |= self._tasks.put_pod(pod)
        self.starting.note(uid)
        self._idle.note(uid)
        return is_news

    def _pod_gone(self, uid: Uid, pod: Pod) -> None:
        task = self.state.tasks.get(uid)
        key = task.job if task is not None else self._members.place(pod).job
        self.changed_jobs.add(key)
        self.pods.pop(uid, None)
        self._tasks.remove_pod(uid)
        self._members.drop_pod(pod)
        for memory in self._of_pods:
            memory.forget(uid)
        self._forget_single(key)

    def _note_place(self, uid: Uid, pod: Pod, place: JobMembership) -> None:
        """Note that `pod` is about to be at `place`; its task may still be elsewhere."""
        self._contests.note(pod, place, self.groups)
        self.changed_jobs.add(place.job)
        task = self.state.tasks.get(uid)
        if task is None or task.job == place.job:
            return
        self.changed_jobs.add(task.job)
        node_name = self.promises.places(task.job).get(uid)
        if node_name is not None:
            self.promises.take_up(place.job, uid, node_name, self._clock())
        self._forget_single(task.job)

    def _forget_single(self, key: JobKey) -> None:
        """Forget what earlier cycles found out about a pod without a PodGroup."""
        if not key.is_group:
            self._forget_job(key)

    def _forget_job(self, key: JobKey) -> None:
        for memory in self._of_jobs:
            memory.forget(key)

    def _place_again(self, pods: Iterable[Pod]) -> None:
        """Move `pods` to the jobs that the present PodGroups give them."""
        for pod in pods:
            uid, place = Uid(pod.metadata.uid), self._members.place(pod)
            self._note_place(uid, pod, place)
            task = self.state.tasks.get(uid)
            if task is not None and place.differs_from(task):
                self._tasks.put_pod(pod)

    def _take_up_promise(self, pod: Pod, known: Pod | None) -> None:
        """Restore the promise of an earlier leader from the nominated node of `pod`."""
        uid, node_name = Uid(pod.metadata.uid), pod.status.nominated_node_name
        said = known.status.nominated_node_name if known is not None else ""
        # A pod in a request has its place there, and an old nomination is not news.
        if node_name and node_name != said and self.holds.get(uid) is None:
            key = self._members.place(pod).job
            self.promises.take_up(key, uid, node_name, self._clock())

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
            # Its pods count other amounts: withdrawn with the old devices, entered with the new.
            self._tasks.charges.node_goes(name)
            known = False
        old = nodes.nodes[nodes.rows[name]] if name in nodes.rows else None
        try:
            row = nodes.put(node)
        except QuantityError as error:
            self.problems.append(
                ObjectProblem("v1", "Node", node.metadata, "InvalidNode", str(error))
            )
            self._apply_node(node, gone=True)  # its old state is no longer true either
            return
        if old is not None and offer(old) != offer(node):
            self.failures.node_changed(name)  # such as a device plugin that has come
        if old is None or is_ready(old) != is_ready(node):
            on_it = (self.state.tasks[uid].job for uid in self._tasks.charges.on_node(name))
            self.changed_jobs.update(on_it)
        images = nodes.images.put(row, node.status.images or ())
        self._tasks.reshape(self._tasks.shapes.images_came(images))
        if not known:
            self._tasks.charges.node_came(name, row)
            self._tasks.resize_shares(nodes.smallest_device_mib())

    def _apply_group(self, group: PodGroup, gone: bool) -> None:
        key = JobKey(group.metadata.namespace, group.metadata.name, True)
        if gone:
            self.changed_jobs.discard(key)
            if self.groups.pop(key, None) is not None:  # else it is another pool's
                self._orphans.note(key, group.metadata, self._clock())
                self._place_again([*self._members.remove_group(key[:2]), *self._pods_of(key)])
                self._tasks.remove_group(key)
                self.commit_counts.forget(Uid(group.metadata.uid))
            self._forget_job(key)  # last: the promises of its pods may go with them
            return
        known = self.groups.get(key)
        self.groups[key] = group
        moved = self._members.put_group(group)
        self._tasks.put_group(group)
        if known is None or known.spec != group.spec:
            self.failures.set_aside.forget(key)  # its user may have mended it
        if (known.spec.sub_groups if known is not None else []) != group.spec.sub_groups:
            moved += self._pods_of(key)
        self._place_again(moved)
        self.changed_jobs.add(key)

    def _pods_of(self, key: JobKey) -> list[Pod]:
        """Return the pods of the job `key`."""
        pods = (self._members.pod(key.namespace, uid) for uid in self.state.jobs[key].tasks)
        return [pod for pod in pods if pod is not None]

    def _apply_queue(self, queue: Queue, gone: bool) -> None:
        name = queue.metadata.name
        if gone:
            if self.queues.pop(name, None) is not None:
                self.state.queues.remove(name)
            return
        self.queues[name] = queue
        self.state.queues.put(queue)

    def _apply_namespace(self, namespace: Namespace, gone: bool) -> None:
        if not self.namespaces.put(namespace, gone=gone):
            return
        for key in [key for key in self.state.jobs if key.namespace == namespace.metadata.name]:
            self.changed_jobs.add(key)
            group, pod = self.groups.get(key), self.observers.get(Pod, (key.namespace, key.name))
            if group is not None:
                self._tasks.put_group(group)
            elif not key.is_group and pod is not None:
                self._tasks.put_pod(pod)

    def _apply_budget(self, budget: DisruptionBudget, gone: bool) -> bool:
        """Apply a budget; return whether a refused eviction may be tried again."""
        return self._reconsider(self.budgets.remove(budget) if gone else self.budgets.put(budget))

    def _reconsider(self, states: Collection[DisruptionBudget]) -> bool:
        freed = [uid for uid in self.failures.spared(self._clock()) if self._counts(states, uid)]
        self.failures.reconsider(freed)
        return bool(freed)

    def _counts(self, budgets: Iterable[DisruptionBudget], uid: Uid) -> bool:
        meta = pod.metadata if (pod := self._pod_of(self.state.tasks.get(uid))) else None
        return meta is not None and any(b.covers(meta.namespace, meta.labels) for b in budgets)

    def _pod_of(self, task: Task | None) -> Pod | None:
        return self.observers.get(Pod, (task.namespace, task.name)) if task is not None else None

    def _apply_statement(self, statement: CommittedStatement, gone: bool) -> bool:
        if gone:
            changed = self.holds.remove(statement, self._clock())
            # No further event of these pods will end their holds.
            for bound in statement.status.bound_pods:
                if Uid(bound) not in self.state.tasks:
                    self.holds.drop(Uid(bound))
        else:
            self.commit_counts.note(statement)
            known = self.holds.statements.get(carried(statement))
            if statement.is_final and (known is None or not known.is_final):  # once per Statement
                failed_at = seconds(statement.status.completion_time) or self._clock()
                self.failures.note(statement, self._job_of, failed_at)
            changed = self.holds.put(statement)
        moved = self._moved(changed)
        # A process that does not lead runs no cycles, so time is noted here too.
        self._end_holds(self._clock())
        return moved

    def _end_holds(self, now: float) -> None:
        """End the holds of deleted requests, and the placeholders of reservations, that are due."""
        self._moved(self.holds.expired(now))
        self._tasks.note_time(now)

    def _moved(self, uids: Iterable[Uid]) -> bool:
        """Enter pods whose holds may have changed; return whether a task has changed."""
        moved = [uid for uid in uids if self._tasks.refresh(uid)]
        jobs = (self._job_of(uid) for uid in moved)
        self.changed_jobs.update(job for job in jobs if job is not None)
        return bool(moved)

    def _job_of(self, uid: str) -> JobKey | None:
        task = self.state.tasks.get(Uid(uid))
        return task.job if task is not None else None
