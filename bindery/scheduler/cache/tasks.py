"""Tasks and jobs from pods and PodGroups, with their charges to nodes and queues.

Called by cluster.py for every event. Invariant: the columns are exactly the sums over the tasks by
their statuses, as a task is always withdrawn before it changes and entered again afterwards.
"""

import math
from collections.abc import Iterable, Sequence

from bindery.api import exclusive
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import DEFAULT_QUEUE, NODE_POOL_LABEL
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.charges import Charges
from bindery.scheduler.cache.defects import Defects, DefectStage, Subject
from bindery.scheduler.cache.expected_reservations import ExpectedReservations
from bindery.scheduler.cache.future_pods import FuturePods
from bindery.scheduler.cache.grants import Grants
from bindery.scheduler.cache.holds import Holds
from bindery.scheduler.cache.members import Members
from bindery.scheduler.cache.namespaces import Namespaces
from bindery.scheduler.cache.pod_shapes import PodShapes
from bindery.scheduler.cache.preemptibility import ChargedPreemptibility
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.cache.reading import (
    are_equivalent,
    counts_alike,
    forget_group,
    queue_of,
    read_group,
    read_pod,
    recorded_preemptible,
    shows_its_binding,
    status_by_pod,
)
from bindery.scheduler.cache.task_queues import TaskQueues, drop_unknown_queues, is_to_record
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.nominations import is_nominated
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState


class TaskStore:
    """Owns `PlanState.tasks` and `.jobs`."""

    def __init__(
        self,
        state: PlanState,
        holds: Holds,
        members: Members,
        priority_classes: PriorityClasses,
        namespaces: Namespaces,
        defects: Defects,
        configuration: SchedulerConfiguration,
    ) -> None:
        self._state = state
        self._members = members
        self._trusts_records = configuration.tenancy_policy_enforced
        self._priority_classes = priority_classes
        self._namespaces = namespaces
        self._defects = defects
        self._default_priority = priority_classes.default
        self._holds = holds
        self.shapes = PodShapes(state.nodes)
        self._queues = TaskQueues(state.jobs, holds, trusts_records=self._trusts_records)
        self.preemptibility = ChargedPreemptibility(
            priority_classes, holds, trusts_records=self._trusts_records
        )
        self._grants = Grants(holds, trusts_records=self._trusts_records)
        self._scheduler_name = configuration.scheduler_name
        self._node_pool = configuration.node_pool
        self._evicting: set[Uid] = set()
        """Tasks with a committed eviction that their pods do not show yet."""
        self.unrecorded: set[Uid] = set()
        """Bound pods that count as something else than recorded: in an assigned queue, or as
        preemptible or not."""
        self._leaving: set[Uid] = set()
        """Tasks with pods that are being deleted from their node."""
        self._stuck_before = -math.inf
        """Releasing pods whose grace period ended before this time are stuck; epoch seconds."""
        self.charges = Charges(state)
        self.futures = FuturePods(state, self.shapes, priority_classes, self._scheduler_name)
        self._expected = ExpectedReservations(self.shapes.book)

    # -- pods ----------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> bool:
        """Add or update a pod; return whether a plan may change: not by an expected binding."""
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
            # `note_binding` reads the hold, so it comes before the hold ends.
            self._queues.note_binding(uid, old)
            self.preemptibility.note_binding(uid, old, recorded_preemptible(pod))
            self._holds.settle(uid)
        if status is not TaskStatus.RUNNING:  # the pod shows its eviction, or has ended
            self._evicting.discard(uid)
        shape, place = self._shape(pod, ours=ours), self._members.place(pod)
        task = read_pod(pod, status, shape, self._scheduler_name, place)
        task.is_of_pool = pod.metadata.labels.get(NODE_POOL_LABEL, "") == self._node_pool
        if old is not None:
            old.take_over_remarks(task)
            moves = self._changes_queue(task.job, pod)
            if not moves and (are_equivalent(old, task) or self._confirm(old, task)):
                return False
            self._take_out(old)
        if ours:
            self._job(task, pod)
        self._end_placeholders(task)
        self._state.tasks[uid] = task
        self._enter(task)
        self._state.pod_counts.add(task)
        self._settle(task.job)
        if task.reserves_gpu:
            self._believe_users(pod)
        if old is None:
            return True
        if old.job != task.job:
            self._settle(old.job)
            self._drop_if_empty(old.job)
        return not shows_its_binding(old, task)

    def _shape(self, pod: Pod, *, ours: bool) -> Shape:
        """Return the shape of `pod`; enter the pods again that its rules give new shapes."""
        self.reshape(self.shapes.note(pod, ours=ours))
        return self.shapes.of(pod, ours=ours)

    def note_nomination(self, pod: Pod, *, gone: bool) -> bool:
        """Note whether another scheduler has nominated `pod`; return whether that is news."""
        if gone or pod.spec.scheduler_name == self._scheduler_name or not is_nominated(pod):
            return self._state.nominations.remove(Uid(pod.metadata.uid))
        return self._state.nominations.put(pod, self._shape(pod, ours=False).request)

    def reshape(self, shapes: Iterable[tuple[Uid, Shape]]) -> None:
        """Enter pods again with new shapes."""
        for uid, shape in shapes:
            task = self._state.tasks.get(uid)
            if task is not None and shape is not task.shape:
                self._withdraw(task)
                self._state.pod_counts.remove(task)
                task.shape = shape
                self._state.pod_counts.add(task)
                self._enter(task)

    def _believe_users(self, reservation: Pod) -> None:
        """Enter the shares of pods that are proven by `reservation`."""
        for user in self._grants.reservation_seen(reservation):
            self.put_pod(user)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod."""
        self._holds.pod_gone(uid)
        self.reshape(self.shapes.forget(uid))
        self._evicting.discard(uid)
        self._queues.forget(uid)
        self.preemptibility.forget(uid)
        task = self._state.tasks.get(uid)
        if task is not None:
            self._take_out(task)
            self._settle(task.job)
            self._drop_if_empty(task.job)
        self.charges.devices.forget(uid)
        self._grants.forget(uid)
        # Last: the placeholders take the devices that the task has just left.
        self._expect_reservations(uid)

    def refresh(self, uid: Uid) -> bool:
        """Update status and node of a task after its hold changed; return whether they differ."""
        doubted = self._grants.doubted(uid)
        if doubted is not None:  # the changed hold may prove its share
            return self.put_pod(doubted)
        task = self._state.tasks.get(uid)
        if task is None:
            self._expect_reservations(uid)
            return False
        if self._stands(task) == (task.status, task.node_name) and not (
            task.is_ours and self._is_misplaced(self._state.jobs[task.job], task)
        ):
            return False
        self._withdraw(task)
        self._enter(task)
        self._settle(task.job)
        return True

    def evicting(self, task: Task) -> None:
        """Count `task`, evicted by a Statement, as releasing until its pod shows it."""
        self._evicting.add(task.uid)
        task.eviction_committed = True

    def not_evicted(self, uid: Uid) -> None:
        """Undo `evicting`: the eviction was refused."""
        self._evicting.discard(uid)
        task = self._state.tasks.get(uid)
        if task is not None:
            task.eviction_committed = False
            self.refresh(uid)

    def note_stuck(self, before: float) -> Sequence[JobKey]:
        """Mark as stuck the pods that should have been gone `before`; return their jobs."""
        self._stuck_before = before
        changed = [uid for uid in sorted(self._leaving) if self.refresh(uid)]
        return [self._state.tasks[uid].job for uid in changed if uid in self._state.tasks]

    def note_time(self, now: float) -> None:
        """End the placeholders of reservations whose requests ended some seconds ago."""
        # A bound hold may outlast its request: where the pod's node was seen before the outcome.
        held = frozenset(uid for uid in self._expected.pods() if self._holds.is_live(uid))
        for uid in self._expected.due(held, now):
            self._drop_reservations(uid)

    def _expect_reservations(self, uid: Uid) -> None:
        """Hold the devices for which the binder may still reserve, for the deleted pod `uid`."""
        hold = self._holds.get(uid)
        if hold is not None and hold.gpu_groups and not hold.is_bound:
            for task in self._expected.expect(uid, hold):
                self._state.tasks[task.uid] = task
                self._enter(task)

    def _end_placeholders(self, task: Task) -> None:
        """Drop the placeholders of the pod `task` if it is about to take its devices itself."""
        if task.status.holds_room:
            self._drop_reservations(task.uid)

    def _drop_reservations(self, uid: Uid) -> None:
        for task in self._expected.end(uid):
            if task in self._state.tasks:  # `recount` removes a task that cannot be entered
                self._take_out(self._state.tasks[task])
                self.charges.devices.forget(task)

    def adopt(self, task: Task, node_name: str) -> None:
        """Change a task from Allocated, by a Statement, to Binding on `node_name`.

        The ledgers have charged it already, so only its status and node name change.
        """
        job = self._state.jobs[task.job]
        self._take_grants(task)
        self.charges.adopt(task, node_name)
        job.move(task, TaskStatus.BINDING)
        self._note_waiting(job)

    def priority_class_changed(self, name: str) -> None:
        """Update the tasks that depend on the PriorityClass `name` or on the default priority."""
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
        """Set the memory of the smallest GPU; if it changed, enter shares by memory again."""
        if device_mib == self.shapes.book.device_mib:
            return
        new, tasks = self.shapes.book.renew(device_mib), list(self._state.tasks.items())
        self.reshape((uid, new.get(task.shape, task.shape)) for uid, task in tasks)

    def purge(self, uid: Uid) -> None:
        """Remove a pod after an error halfway through its intake. The caller then recounts."""
        self._state.tasks.pop(uid, None)
        self.reshape(self.shapes.forget(uid))
        self._evicting.discard(uid)
        self.charges.devices.forget(uid)

    def sweep_queues(self) -> None:
        """Drop rows of queues that do not exist and that no pod or job names any more."""
        if drop_unknown_queues(self._state):
            self.recount()

    def recount(self) -> None:
        """Compute all sums of nodes, queues and jobs again, after an error halfway.

        A task that cannot be entered is removed.
        """
        state = self._state
        # Each failure may leave sums half changed, so every attempt starts from empty columns.
        while (lost := self._enter_all()) is not None:
            del state.tasks[lost]
        state.pod_counts.recount(state.tasks.values())
        for key in [key for key, job in state.jobs.items() if not job.tasks]:
            self._drop_if_empty(key)

    def _enter_all(self) -> Uid | None:
        """Empty the columns and enter all tasks; return the first that cannot be entered."""
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
            except Exception as error:
                self._defects.note(
                    DefectStage.INTAKE, Subject("Pod", task.namespace, task.name), error
                )
                return task.uid
        return None

    # -- PodGroups -----------------------------------------------------------------------------

    def put_group(self, group: PodGroup) -> None:
        """Add or update a PodGroup."""
        key = JobKey(group.metadata.namespace, group.metadata.name, True)
        job = self._state.jobs.setdefault(key, Job(key))
        read_group(job, group)
        self.reshape(self.futures.put(job, group))
        job.named_queue = group.spec.queue or self._namespaces.queue(key.namespace)
        job.is_assigned = self._trusts_records and bool(group.status.queue and group.spec.queue)
        self._change(job)

    def remove_group(self, key: JobKey) -> None:
        """Remove a PodGroup. Pods that still name it wait."""
        job = self._state.jobs[key]
        forget_group(job)
        self.reshape(self.futures.remove(job))
        job.named_queue, job.is_assigned = DEFAULT_QUEUE, False
        self._change(job)
        self._drop_if_empty(key)

    def _change(self, job: Job) -> None:
        """Enter the tasks of `job` again after a change of the job; its queue gets a row."""
        self._reenter(job)
        self._state.queues.row(job.queue)
        self._settle(job.key)

    def _settle(self, key: JobKey) -> None:
        """Update the queue of a job and its tasks."""
        job = self._state.jobs.get(key)
        if job is not None and job.queue != job.settled_queue():
            self._join(job)
            self._reenter(job)

    def _join(self, job: Job) -> None:
        """Set the queue of `job`; it gets a row, as sessions look it up."""
        job.queue = job.settled_queue()
        self._state.queues.row(job.queue)

    def _reenter(self, job: Job) -> None:
        """Enter again the tasks of `job` whose queue or preemptibility has changed."""
        changed = [task for task in job.tasks.values() if self._is_misplaced(job, task)]
        for task in changed:
            self._withdraw(task)
        for task in changed:
            self._enter(task)
        for task in job.tasks.values():
            self.preemptibility.note(job, task)

    def _is_misplaced(self, job: Job, task: Task) -> bool:
        """Return whether `task` counts in another queue, or as something else, than it should."""
        return task.queue != self._queues.queue_of(
            job, task
        ) or task.is_preemptible != self.preemptibility.of(job, task)

    def charge_as(self, tasks: Iterable[Task], *, is_preemptible: bool) -> None:
        """Count bound `tasks` as preemptible or not from now on, whatever their records are."""
        for task in tasks:
            self._withdraw(task)
            self.preemptibility.settle(task, is_preemptible=is_preemptible)
            self._enter(task)

    def _job(self, task: Task, pod: Pod) -> Job:
        key = task.job
        job = self._state.jobs.get(key)
        if job is None:
            job = self._state.jobs[key] = Job(key)
        if not key.is_group:
            job.exists, job.uid = True, Uid(pod.metadata.uid)
            job.created = pod.metadata.creation_timestamp or ""
            job.named_queue = self._named_by(pod)
            job.awaits_group = task.awaits_group
            self._join(job)
        return job

    def _named_by(self, pod: Pod) -> str:
        return queue_of(pod, self._namespaces.queue(pod.metadata.namespace))

    def _changes_queue(self, key: JobKey, pod: Pod) -> bool:
        """Return whether `pod`, a single pod, or its namespace names another queue than before."""
        job = self._state.jobs.get(key)
        return not key.is_group and job is not None and job.named_queue != self._named_by(pod)

    def _drop_if_empty(self, key: JobKey) -> None:
        job = self._state.jobs.get(key)
        if job is not None and not job.tasks and not (key.is_group and job.exists):
            del self._state.jobs[key]
            self._state.waiting.pop(key, None)

    # -- where a task stands -------------------------------------------------------------------

    def _stands(self, task: Task) -> tuple[TaskStatus, str]:
        """Return status and node name by the pod object, its hold and its eviction."""
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
        self._take_grants(task)
        task.eviction_committed = task.uid in self._evicting
        if task.pod_status is TaskStatus.RELEASING:
            self._leaving.add(task.uid)
        if task.is_ours:
            job = self._state.jobs[task.job]
            # The queue depends on the status, and `job.add` counts the task in the queue.
            task.queue = self._queues.queue_of(job, task)
            task.queue_row = self._state.queues.row(task.queue)
            if not task.has_own_priority:
                task.priority = self._default_priority
            self.preemptibility.note(job, task)
            job.add(task)
            self._note_waiting(job)
            if task.pod_status is TaskStatus.RUNNING:
                self._note_record(job, task)
        self.charges.enter(task)

    def _confirm(self, old: Task, task: Task) -> bool:
        """Replace `old` by `task` if the pod shows the expected binding and nothing else.

        Every pod gets here once. Its charges stay as they are: withdrawing them and entering the
        same again would take twice as long.
        """
        task.status, task.node_name = self._stands(task)
        if not shows_its_binding(old, task) or not counts_alike(old, task):
            return False
        job = self._state.jobs[task.job]
        if old.queue != self._queues.queue_of(job, task):
            return False
        if not task.has_own_priority:
            task.priority = self._default_priority
        self.preemptibility.note(job, task)
        if task.is_preemptible != old.is_preemptible:
            return False
        task.row, task.queue, task.queue_row = old.row, old.queue, old.queue_row
        self._note_record(job, task)
        self._state.tasks[task.uid] = job.tasks[task.uid] = task
        return True

    def _note_record(self, job: Job, task: Task) -> None:
        if is_to_record(job, task) or self.preemptibility.is_to_record(task):
            self.unrecorded.add(task.uid)

    def _take_grants(self, task: Task) -> None:
        """Set the GPU groups and exclusive domains of `task` from its request, if it has one."""
        hold = self._holds.get(task.uid)
        if hold is not None:
            task.gpu_groups = hold.gpu_groups or task.gpu_groups
            held = exclusive.from_data(hold.data.get(exclusive.PLUGIN_DATA))
            task.held_levels = held.levels if held is not None else ()

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
        self._state.pod_counts.remove(task)
        del self._state.tasks[task.uid]

    def _note_waiting(self, job: Job) -> None:
        if job.pending or job.gated_count:
            self._state.waiting[job.key] = job
        else:
            self._state.waiting.pop(job.key, None)
