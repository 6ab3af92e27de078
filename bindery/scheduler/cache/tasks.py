"""Pods and PodGroups become tasks and jobs, charged to their node and queue.

Called by cluster.py for every event. The one invariant: what columns hold is exactly the sum of
what the tasks' statuses say, as a task is always withdrawn before it changes and entered after.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

from bindery.api.names import (
    DEFAULT_QUEUE,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
    ROLE_LABEL,
    SUB_GROUP_LABEL,
)
from bindery.api.times import seconds
from bindery.kube.objects import Pod, PodGroup
from bindery.scheduler.cache.holds import Holds
from bindery.scheduler.model import gangs
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import ShapeBook
from bindery.scheduler.model.state import PlanState

NON_PREEMPTIBLE_FROM = 100
"""The priority from which a gang is not evicted for others, unless it says otherwise."""


def job_key(pod: Pod) -> JobKey:
    """Return the job that `pod` belongs to: its PodGroup, or itself."""
    group = pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
    if group:
        return JobKey(pod.metadata.namespace, group, True)
    return JobKey(pod.metadata.namespace, pod.metadata.name, False)


def status_by_pod(pod: Pod) -> TaskStatus | None:
    """Return what the pod object alone says; None for a pod that will never be bound."""
    if pod.status.phase == "Succeeded":
        return TaskStatus.SUCCEEDED
    if pod.status.phase == "Failed":
        return TaskStatus.FAILED
    leaving = pod.metadata.deletion_timestamp is not None
    if pod.spec.node_name:
        return TaskStatus.RELEASING if leaving else TaskStatus.RUNNING
    if leaving:
        return None
    return TaskStatus.GATED if pod.spec.scheduling_gates else TaskStatus.PENDING


class TaskStore:
    """Keeps `PlanState.tasks` and `.jobs`. `scheduler_name`: whose pods are planned."""

    def __init__(
        self,
        state: PlanState,
        holds: Holds,
        scheduler_name: str,
        priority_classes: Mapping[str, int],
    ) -> None:
        self._state = state
        self._priority_classes = priority_classes
        self._holds = holds
        self._shapes = ShapeBook(state.axis)
        self._scheduler_name = scheduler_name
        self._evicting: set[Uid] = set()
        """Tasks whose eviction is committed, and whose pods do not show it yet."""
        self._leaving: set[Uid] = set()
        """Tasks whose pods are being deleted from their node."""
        self._stuck_before = -math.inf
        """Pods that should have been gone by this time are stuck."""
        self._on_node: defaultdict[str, set[Uid]] = defaultdict(set)
        """Node name -> tasks that hold room there, known node or not."""

    # -- pods ----------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        """Take in a new pod or a pod's new state."""
        uid = Uid(pod.metadata.uid)
        status = status_by_pod(pod)
        ours = pod.spec.scheduler_name == self._scheduler_name
        old = self._state.tasks.get(uid)
        if status is None or not (ours or status.holds_room):
            if old is not None:
                self.remove_pod(uid)
            return
        if pod.spec.node_name:
            self._holds.settle(uid)
        if status is not TaskStatus.RUNNING:
            self._evicting.discard(uid)
        task = self._task(pod, status)
        if old is not None:
            if _same(old, task) and not self._changes_queue(task.job, pod):
                return
            self._take_out(old)
        if ours:
            self._job(task.job, pod)
        self._state.tasks[uid] = task
        self._enter(task)
        if old is not None and old.job != task.job:
            self._drop_if_empty(old.job)

    def _task(self, pod: Pod, status: TaskStatus) -> Task:
        return Task(
            uid=Uid(pod.metadata.uid),
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            job=job_key(pod),
            shape=self._shapes.of(pod),
            priority=pod.spec.priority or 0,
            created=pod.metadata.creation_timestamp or "",
            pod_status=status,
            pod_node=pod.spec.node_name,
            gone_by=seconds(pod.metadata.deletion_timestamp) or math.inf,
            says_preemptible=_says_preemptible(pod),
            bound_at=_bound_at(pod),
            never_preempts=pod.spec.preemption_policy == "Never",
            sub_group=pod.metadata.labels.get(SUB_GROUP_LABEL, ""),
            role=pod.metadata.labels.get(ROLE_LABEL, ""),
            is_ours=pod.spec.scheduler_name == self._scheduler_name,
        )

    def remove_pod(self, uid: Uid) -> None:
        """Forget a pod."""
        self._holds.settle(uid)
        self._evicting.discard(uid)
        task = self._state.tasks.get(uid)
        if task is not None:
            self._take_out(task)
            self._drop_if_empty(task.job)

    def refresh(self, uid: Uid) -> None:
        """Work out anew where a task stands, after its hold has changed."""
        task = self._state.tasks.get(uid)
        if task is not None and self._stands(task) != (task.status, task.node_name):
            self._withdraw(task)
            self._enter(task)

    def evicting(self, task: Task) -> None:
        """Count `task`, which a Statement has evicted, as leaving until its pod shows it."""
        self._evicting.add(task.uid)
        task.eviction_committed = True

    def not_evicted(self, uid: Uid) -> None:
        """Undo `evicting`: the eviction was refused."""
        self._evicting.discard(uid)
        task = self._state.tasks.get(uid)
        if task is not None:
            task.eviction_committed = False
            self.refresh(uid)

    def note_stuck(self, before: float) -> None:
        """Count on no pod that should have been gone `before` (seconds since the epoch)."""
        self._stuck_before = before
        for uid in sorted(self._leaving):
            self.refresh(uid)

    def adopt(self, task: Task, node_name: str) -> None:
        """Turn a task that a Statement has allocated into one that is Binding on `node_name`.

        The ledgers have charged it already, so only its status and place by name change.
        """
        task.node_name = node_name
        self._state.jobs[task.job].move(task, TaskStatus.BINDING)
        self._on_node[node_name].add(task.uid)
        self._note_waiting(self._state.jobs[task.job])

    def priority_class_changed(self, name: str) -> None:
        """Work out anew who may be evicted among the gangs of the PriorityClass `name`."""
        for job in self._state.jobs.values():
            if job.priority_class == name:
                self._change(job)

    # -- PodGroups -----------------------------------------------------------------------------

    def put_group(self, group: PodGroup) -> None:
        """Take in a new PodGroup or a PodGroup's new state."""
        key = JobKey(group.metadata.namespace, group.metadata.name, True)
        job = self._state.jobs.setdefault(key, Job(key))
        job.exists, job.uid = True, Uid(group.metadata.uid)
        job.created = group.metadata.creation_timestamp or ""
        job.priority_class = group.spec.priority_class_name
        job.min_member, job.roles = max(0, group.spec.min_member), group.spec.roles
        job.preemption_delay_s = group.spec.preemption_delay_seconds
        job.staleness_grace_s = group.spec.staleness_grace_period_seconds
        job.invalid = None
        try:
            job.tree = gangs.build(group.spec.sub_groups, group.spec.min_sub_group)
        except gangs.GangError as error:
            job.tree, job.invalid = None, str(error)
        job.says_preemptible = _PREEMPTIBILITY.get(group.spec.preemptibility or "")
        if group.spec.min_member < 0:
            job.invalid = f"spec.minMember is {group.spec.min_member}: it must not be negative"
        self._change(job, group.spec.queue or DEFAULT_QUEUE)

    def remove_group(self, key: JobKey) -> None:
        """Forget a PodGroup; pods that still name it wait."""
        job, unseen = self._state.jobs[key], Job(key)
        job.exists, job.uid, job.invalid = False, unseen.uid, None
        job.created, job.priority_class = unseen.created, unseen.priority_class
        job.min_member, job.roles, job.tree = unseen.min_member, unseen.roles, unseen.tree
        job.says_preemptible = unseen.says_preemptible
        self._change(job, unseen.queue)
        self._drop_if_empty(key)

    def _change(self, job: Job, queue: str | None = None) -> None:
        """Count the tasks of `job` as it is now, in another `queue` if given."""
        moves = queue is not None and job.queue != queue
        changed = [
            task
            for task in job.tasks.values()
            if moves or task.is_preemptible != self._is_preemptible(job, task)
        ]
        for task in changed:
            self._withdraw(task)
        if queue is not None:
            job.queue = queue
        for task in changed:
            self._enter(task)

    def _job(self, key: JobKey, pod: Pod) -> Job:
        job = self._state.jobs.get(key)
        if job is None:
            job = self._state.jobs[key] = Job(key)
        if not key.is_group:
            job.exists, job.uid = True, Uid(pod.metadata.uid)
            job.created = pod.metadata.creation_timestamp or ""
            job.queue = _queue_of(pod)
        return job

    def _changes_queue(self, key: JobKey, pod: Pod) -> bool:
        """Return whether `pod`, a job by itself, has been moved to another queue by its label."""
        job = self._state.jobs.get(key)
        return not key.is_group and job is not None and job.queue != _queue_of(pod)

    def _drop_if_empty(self, key: JobKey) -> None:
        job = self._state.jobs.get(key)
        if job is not None and not job.tasks and not (key.is_group and job.exists):
            del self._state.jobs[key]
            self._state.waiting.pop(key, None)

    # -- nodes ---------------------------------------------------------------------------------

    def node_came(self, node_name: str, row: int) -> None:
        """Charge the tasks that stand on a node which has just become known."""
        for uid in self._on_node.get(node_name, ()):
            task = self._state.tasks[uid]
            if task.row == NO_ROW:
                self._withdraw_from_queue(task)
                task.row = row
                self._charge_node(task, 1)
                self._enter_queue(task)

    def node_goes(self, node_name: str) -> None:
        """Take the tasks off a node that is about to be forgotten."""
        for uid in self._on_node.get(node_name, ()):
            task = self._state.tasks[uid]
            if task.row != NO_ROW:
                self._withdraw_from_queue(task)
                self._charge_node(task, -1)
                task.row = NO_ROW
                self._enter_queue(task)

    # -- charging ------------------------------------------------------------------------------

    def _stands(self, task: Task) -> tuple[TaskStatus, str]:
        """Return status and node by the pod object and its hold together."""
        if task.pod_status is TaskStatus.PENDING:
            hold = self._holds.get(task.uid)
            if hold is not None:
                return TaskStatus.BINDING, hold.node_name
            return TaskStatus.PENDING, ""
        if task.pod_status is TaskStatus.RUNNING and task.uid in self._evicting:
            return TaskStatus.RELEASING, task.pod_node
        if task.pod_status is TaskStatus.RELEASING and task.gone_by < self._stuck_before:
            return TaskStatus.STUCK, task.pod_node
        return task.pod_status, task.pod_node if task.pod_status.holds_room else ""

    def _enter(self, task: Task) -> None:
        task.status, task.node_name = self._stands(task)
        task.eviction_committed = task.uid in self._evicting
        if task.pod_status is TaskStatus.RELEASING:
            self._leaving.add(task.uid)
        if task.status.holds_room:
            self._on_node[task.node_name].add(task.uid)
            task.row = self._state.nodes.rows.get(task.node_name, NO_ROW)
            if task.row != NO_ROW:
                self._charge_node(task, 1)
        if task.is_ours:
            job = self._state.jobs[task.job]
            task.queue_row = self._state.queues.row(job.queue)
            task.is_preemptible = self._is_preemptible(job, task)
            self._enter_queue(task)
            job.add(task)
            self._note_waiting(job)

    def _withdraw(self, task: Task) -> None:
        if task.is_ours:
            self._withdraw_from_queue(task)
            job = self._state.jobs[task.job]
            job.remove(task)
            self._note_waiting(job)
        if task.status.holds_room:
            self._on_node[task.node_name].discard(task.uid)
            if not self._on_node[task.node_name]:
                del self._on_node[task.node_name]
            if task.row != NO_ROW:
                self._charge_node(task, -1)
                task.row = NO_ROW

    def _take_out(self, task: Task) -> None:
        self._withdraw(task)
        self._leaving.discard(task.uid)
        del self._state.tasks[task.uid]

    def _charge_node(self, task: Task, sign: int) -> None:
        self._state.nodes.hold(task.row, task.shape.request, sign)
        if not task.is_ours:
            self._state.nodes.hold_foreign(task.row, task.shape.request, sign)
        if task.status is TaskStatus.RELEASING:
            self._state.nodes.release(task.row, task.shape.request, sign)

    def _enter_queue(self, task: Task) -> None:
        self._charge_queue(task, 1)

    def _withdraw_from_queue(self, task: Task) -> None:
        self._charge_queue(task, -1)

    def _charge_queue(self, task: Task, sign: int) -> None:
        """Count what an active task holds, and asks for, in its queue: on its node's model too."""
        if not task.is_ours:
            return
        queues, request = self._state.queues, task.shape.request
        if task.status.is_active:
            if task.row != NO_ROW:
                request = self._state.nodes.charge(task.row, request)
            queues.hold(task.queue_row, request, preemptible=task.is_preemptible, sign=sign)
        elif task.status is TaskStatus.PENDING:
            queues.ask(task.queue_row, request, sign)

    def _is_preemptible(self, job: Job, task: Task) -> bool:
        """Return whether `task` may be evicted for others: by what it says, or its job, or its
        priority (KAI-Scheduler: below 100).
        """
        if task.says_preemptible is not None:
            return task.says_preemptible
        if job.says_preemptible is not None:
            return job.says_preemptible
        priority = self._priority_classes.get(job.priority_class or "", task.priority)
        return priority < NON_PREEMPTIBLE_FROM

    def _note_waiting(self, job: Job) -> None:
        if job.pending or job.gated_count:
            self._state.waiting[job.key] = job
        else:
            self._state.waiting.pop(job.key, None)


_PREEMPTIBILITY = {"Preemptible": True, "NonPreemptible": False}
_SAYS = {"true": True, "false": False}


def _says_preemptible(pod: Pod) -> bool | None:
    return _SAYS.get(pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION, "").lower())


def _bound_at(pod: Pod) -> float | None:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True":
            return seconds(condition.last_transition_time)
    return None


def _queue_of(pod: Pod) -> str:
    return pod.metadata.labels.get(QUEUE_LABEL) or DEFAULT_QUEUE


def _same(one: Task, other: Task) -> bool:
    """Return whether two tasks of one pod say the same."""
    return (
        one.shape is other.shape
        and (one.job, one.priority) == (other.job, other.priority)
        and one.says_preemptible == other.says_preemptible
        and (one.sub_group, one.role) == (other.sub_group, other.role)
        and one.bound_at == other.bound_at
        and (one.pod_status, one.pod_node) == (other.pod_status, other.pod_node)
        and one.gone_by == other.gone_by
    )
