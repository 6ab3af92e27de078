"""Pods and PodGroups become tasks and jobs, charged to their node and queue.

Called by cluster.py for every event. The one invariant: what columns hold is exactly the sum of
what the tasks' statuses say, as a task is always withdrawn before it changes and entered after.
"""

import math

from bindery.api.names import DEFAULT_QUEUE
from bindery.kube.objects import Pod, PodGroup
from bindery.scheduler.cache.charges import Charges
from bindery.scheduler.cache.grants import Grants
from bindery.scheduler.cache.holds import Hold, Holds
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.cache.reading import (
    forget_group,
    queue_of,
    read_group,
    read_pod,
    say_the_same,
    status_by_pod,
)
from bindery.scheduler.cache.reservationstocome import ReservationsToCome
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import ShapeBook
from bindery.scheduler.model.state import PlanState

MOST_UNKNOWN_QUEUES = 256
"""How many queues that do not exist are kept although nobody names them."""
NON_PREEMPTIBLE_FROM = 100
"""The priority from which a gang is not evicted for others, unless it says otherwise."""


class TaskStore:
    """Keeps `PlanState.tasks` and `.jobs`. `scheduler_name`: whose pods are planned."""

    def __init__(
        self,
        state: PlanState,
        holds: Holds,
        scheduler_name: str,
        priority_classes: PriorityClasses,
        *,
        trusts_records: bool = False,
    ) -> None:
        """`trusts_records`: whether only the binder can have written what pods have recorded."""
        self._state = state
        self._trusts_records = trusts_records
        self._priority_classes = priority_classes
        self._default_priority = priority_classes.default
        self._holds = holds
        self._shapes = ShapeBook(state.axis)
        self._grants = Grants(holds, trusts_records=trusts_records)
        self._scheduler_name = scheduler_name
        self._evicting: set[Uid] = set()
        """Tasks whose eviction is committed, and whose pods do not show it yet."""
        self._bound_in: dict[Uid, str] = {}
        """Bound pod -> the queue that this process saw it charged to when it was bound."""
        self.unrecorded: set[Uid] = set()
        """Bound pods whose job was assigned to another queue than the one recorded on them."""
        self._leaving: set[Uid] = set()
        """Tasks whose pods are being deleted from their node."""
        self._stuck_before = -math.inf
        """Pods that should have been gone by this time are stuck."""
        self.charges = Charges(state)
        self._to_come = ReservationsToCome(self._shapes)

    # -- pods ----------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> bool:
        """Take in a new pod or a pod's new state.

        Returns:
            Whether it says more than that it stands where it was to be bound.
        """
        uid = Uid(pod.metadata.uid)
        status = status_by_pod(pod)
        ours = pod.spec.scheduler_name == self._scheduler_name
        old = self._state.tasks.get(uid)
        if status is None or not (ours or status.holds_room):
            if old is not None:
                self.remove_pod(uid)
            return old is not None
        pod = self._grants.as_granted(pod)
        if pod.spec.node_name:
            self._note_binding(uid, old)
            self._holds.settle(uid)
        if status is not TaskStatus.RUNNING:
            self._evicting.discard(uid)
        task = read_pod(pod, status, self._shapes.of(pod), self._scheduler_name)
        if old is not None:
            if say_the_same(old, task) and not self._changes_queue(task.job, pod):
                return False
            self._take_out(old)
        if ours:
            self._job(task.job, pod)
        self._drop_reservations(uid)
        self._state.tasks[uid] = task
        self._enter(task)
        self._settle(task.job)
        if task.reserves_gpu:
            self._believe_users(pod)
        if old is None:
            return True
        if old.job != task.job:
            self._settle(old.job)
            self._drop_if_empty(old.job)
        return not _shows_its_binding(old, task)

    def _believe_users(self, reservation: Pod) -> None:
        """Count the shares of pods that are believed because of `reservation`."""
        for user in self._grants.reservation_seen(reservation):
            self.put_pod(user)

    def remove_pod(self, uid: Uid) -> None:
        """Forget a pod."""
        self._holds.pod_gone(uid)
        self._evicting.discard(uid)
        self._bound_in.pop(uid, None)
        task = self._state.tasks.get(uid)
        if task is not None:
            self._take_out(task)
            self._settle(task.job)
            self._drop_if_empty(task.job)
        self.charges.devices.forget(uid)
        self._grants.forget(uid)
        self._expect_reservations(uid)

    def refresh(self, uid: Uid) -> bool:
        """Work out anew where a task stands after its hold has changed; return whether it moves."""
        doubted = self._grants.doubted(uid)
        if doubted is not None:
            return self.put_pod(doubted)
        task = self._state.tasks.get(uid)
        if task is None:
            self._expect_reservations(uid)
            return False
        if self._stands(task) == (task.status, task.node_name) and not self._is_misplaced(task):
            return False
        self._withdraw(task)
        self._enter(task)
        self._settle(task.job)
        return True

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

    def note_time(self, now: float) -> None:
        """Stop to expect reservations for requests that ended a while ago."""
        held = frozenset(uid for uid in self._to_come.pods() if self._holds.get(uid) is not None)
        for uid in self._to_come.due(held, now):
            self._drop_reservations(uid)

    def _expect_reservations(self, uid: Uid) -> None:
        """Keep the devices for which the binder may be creating reservations; `uid` is gone."""
        hold = self._holds.get(uid)
        if hold is not None and hold.gpu_groups and not hold.is_bound:
            for task in self._to_come.expect(uid, hold):
                self._state.tasks[task.uid] = task
                self._enter(task)

    def _drop_reservations(self, uid: Uid) -> None:
        for task in self._to_come.end(uid):
            if task in self._state.tasks:  # one that could not be counted is forgotten already
                self._take_out(self._state.tasks[task])
                self.charges.devices.forget(task)

    def adopt(self, task: Task, node_name: str) -> None:
        """Turn a task that a Statement has allocated into one that is Binding on `node_name`.

        The ledgers have charged it already, so only its status and place by name change.
        """
        job = self._state.jobs[task.job]
        self._take_groups(task)
        self.charges.adopt(task, node_name)
        job.move(task, TaskStatus.BINDING)
        self._note_waiting(job)

    def priority_class_changed(self, name: str) -> None:
        """Work out anew who may be evicted among the gangs of the PriorityClass `name`, and where
        the pods stand whose priority is the default.
        """
        for job in self._state.jobs.values():
            if job.priority_class == name:
                self._change(job)
        if self._default_priority != self._priority_classes.default:
            self._default_priority = self._priority_classes.default
            for task in self._state.tasks.values():
                if not task.has_own_priority:
                    self._withdraw(task)
                    self._enter(task)

    def resize_shares(self, device_mib: int) -> None:
        """Count parts of GPUs by memory anew if the smallest GPU has another size than before."""
        if device_mib == self._shapes.device_mib:
            return
        renewed = self._shapes.renew(device_mib)
        for task in self._state.tasks.values():
            shape = renewed.get(task.shape)
            if shape is not None:
                self._withdraw(task)
                task.shape = shape
                self._enter(task)

    def purge(self, uid: Uid) -> None:
        """Forget a pod of which the handling failed halfway; `recount` is to follow."""
        self._state.tasks.pop(uid, None)
        self._evicting.discard(uid)
        self.charges.devices.forget(uid)

    def sweep_queues(self) -> None:
        """Drop rows of queues that pods have named, and no pod names any more.

        Users may name any queue, and each takes a column.
        """
        queues = self._state.queues
        if sum(not entry.exists for entry in queues.entries) <= MOST_UNKNOWN_QUEUES:
            return
        named = {task.queue for task in self._state.tasks.values()}
        for job in self._state.jobs.values():
            named |= {job.queue, job.named_queue}
        dead = sum(not entry.exists and entry.name not in named for entry in queues.entries)
        if dead > MOST_UNKNOWN_QUEUES:
            queues.compact(named)
            self.recount()

    def recount(self) -> None:
        """Work out anew, from the tasks alone, what nodes, queues and jobs hold.

        For use after an error that may have left sums half changed. A task that cannot be entered
        is forgotten.
        """
        state = self._state
        while (lost := self._enter_all()) is not None:
            del state.tasks[lost]
        for key in [key for key, job in state.jobs.items() if not job.tasks]:
            self._drop_if_empty(key)

    def _enter_all(self) -> Uid | None:
        """Enter all tasks into emptied columns; return the first that cannot be entered."""
        state = self._state
        self.charges.empty()
        self._leaving.clear()
        state.waiting.clear()
        for job in state.jobs.values():
            job.empty()
        for task in state.tasks.values():
            task.row = NO_ROW
            try:
                self._enter(task)
            except Exception:  # its own object is to blame, and is told so where that is handled
                return task.uid
        return None

    # -- PodGroups -----------------------------------------------------------------------------

    def put_group(self, group: PodGroup) -> None:
        """Take in a new PodGroup or a PodGroup's new state."""
        key = JobKey(group.metadata.namespace, group.metadata.name, True)
        job = self._state.jobs.setdefault(key, Job(key))
        read_group(job, group)
        job.named_queue = group.spec.queue or DEFAULT_QUEUE
        job.is_assigned = self._trusts_records and bool(group.status.queue)
        self._change(job)

    def remove_group(self, key: JobKey) -> None:
        """Forget a PodGroup; pods that still name it wait."""
        job = self._state.jobs[key]
        forget_group(job)
        job.named_queue, job.is_assigned = DEFAULT_QUEUE, False
        self._change(job)
        self._drop_if_empty(key)

    def _change(self, job: Job) -> None:
        """Count the tasks of `job` as it is now."""
        self._reenter(job)
        self._settle(job.key)

    def _settle(self, key: JobKey) -> None:
        """Move what follows the job's queue if that is another one now."""
        job = self._state.jobs.get(key)
        if job is not None and job.queue != job.settled_queue():
            self._join(job)
            self._reenter(job)

    def _join(self, job: Job) -> None:
        """Let `job` be of the queue that it belongs in.

        The queue gets a row even if nothing of the job is counted: sessions ask for it.
        """
        job.queue = job.settled_queue()
        self._state.queues.row(job.queue)

    def _reenter(self, job: Job) -> None:
        """Count those tasks of `job` again that are in another queue now, or may be evicted now."""
        changed = [
            task
            for task in job.tasks.values()
            if task.queue != self._queue_of(job, task)
            or task.is_preemptible != self._is_preemptible(job, task)
        ]
        for task in changed:
            self._withdraw(task)
        for task in changed:
            self._enter(task)

    def _is_misplaced(self, task: Task) -> bool:
        return task.is_ours and task.queue != self._queue_of(self._state.jobs[task.job], task)

    def _queue_of(self, job: Job, task: Task) -> str:
        """Return the queue that `task`, whose status is settled, counts in.

        A bound pod stays where it was charged when it was bound, whatever its owner writes into it
        or its PodGroup afterwards, unless the job was assigned to another queue.
        """
        if not task.status.holds_room:
            return job.queue
        if task.status is TaskStatus.BINDING:
            hold = self._holds.get(task.uid) or Hold(task.node_name)
            is_assigned = job.is_assigned and hold.pod_group == job.uid
            return job.named_queue if is_assigned or not hold.queue else hold.queue
        if job.is_assigned and task.recorded_group == job.uid:
            return job.named_queue
        seen = self._bound_in.get(task.uid, "")
        if self._trusts_records:
            return task.recorded_queue or seen or job.named_queue
        return seen or task.recorded_queue or job.named_queue

    @staticmethod
    def _is_to_record(job: Job, task: Task) -> bool:
        return job.is_assigned and bool(task.recorded_queue) and task.queue != task.recorded_queue

    def _note_binding(self, uid: Uid, before: Task | None) -> None:
        """Remember where a pod counts that has just been bound; `before`: it before that."""
        if uid in self._bound_in:
            return
        hold = self._holds.get(uid)
        if hold is not None and hold.queue:
            self._bound_in[uid] = hold.queue
        elif before is not None and before.is_ours and not before.pod_node:
            job = self._state.jobs[before.job]
            if job.exists:
                self._bound_in[uid] = job.queue

    def _job(self, key: JobKey, pod: Pod) -> Job:
        job = self._state.jobs.get(key)
        if job is None:
            job = self._state.jobs[key] = Job(key)
        if not key.is_group:
            job.exists, job.uid = True, Uid(pod.metadata.uid)
            job.created = pod.metadata.creation_timestamp or ""
            job.named_queue = queue_of(pod)
            self._join(job)
        return job

    def _changes_queue(self, key: JobKey, pod: Pod) -> bool:
        """Return whether `pod`, a job by itself, has been moved to another queue by its label."""
        job = self._state.jobs.get(key)
        return not key.is_group and job is not None and job.named_queue != queue_of(pod)

    def _drop_if_empty(self, key: JobKey) -> None:
        job = self._state.jobs.get(key)
        if job is not None and not job.tasks and not (key.is_group and job.exists):
            del self._state.jobs[key]
            self._state.waiting.pop(key, None)

    # -- where a task stands -------------------------------------------------------------------

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
        self.charges.writes += 1
        task.status, task.node_name = self._stands(task)
        self._take_groups(task)
        task.eviction_committed = task.uid in self._evicting
        if task.pod_status is TaskStatus.RELEASING:
            self._leaving.add(task.uid)
        if task.is_ours:
            job = self._state.jobs[task.job]
            task.queue = self._queue_of(job, task)
            task.queue_row = self._state.queues.row(task.queue)
            if not task.has_own_priority:
                task.priority = self._default_priority
            task.is_preemptible = self._is_preemptible(job, task)
            job.add(task)
            self._note_waiting(job)
            if task.pod_status is TaskStatus.RUNNING and self._is_to_record(job, task):
                self.unrecorded.add(task.uid)
        self.charges.enter(task)

    def _take_groups(self, task: Task) -> None:
        """Let `task` be of the GPU groups that its request names."""
        hold = self._holds.get(task.uid)
        if hold is not None and hold.gpu_groups:
            task.gpu_groups = hold.gpu_groups

    def _withdraw(self, task: Task) -> None:
        self.charges.writes += 1
        self.charges.withdraw(task)
        self.unrecorded.discard(task.uid)
        if task.is_ours:
            job = self._state.jobs[task.job]
            job.remove(task)
            self._note_waiting(job)

    def _take_out(self, task: Task) -> None:
        self._withdraw(task)
        self._leaving.discard(task.uid)
        del self._state.tasks[task.uid]

    def _is_preemptible(self, job: Job, task: Task) -> bool:
        """Return whether `task` may be evicted for others: by what it says, or its job, or its
        priority (KAI-Scheduler: below 100).
        """
        if task.says_preemptible is not None:
            return task.says_preemptible
        if job.says_preemptible is not None:
            return job.says_preemptible
        of_class = self._priority_classes.value(job.priority_class)
        return (task.priority if of_class is None else of_class) < NON_PREEMPTIBLE_FROM

    def _note_waiting(self, job: Job) -> None:
        if job.pending or job.gated_count:
            self._state.waiting[job.key] = job
        else:
            self._state.waiting.pop(job.key, None)


def _shows_its_binding(before: Task, after: Task) -> bool:
    """Return whether a pod only shows now that it is bound where its room has been held for it."""
    return (
        (before.status, after.status) == (TaskStatus.BINDING, TaskStatus.RUNNING)
        and before.node_name == after.node_name
        and before.shape is after.shape
        and before.job == after.job
    )
