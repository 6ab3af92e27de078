"""The session: the cluster during one cycle.

The engine opens it; actions and plugins use it. It borrows the columns of the cache, adds values
that are computed once a cycle, and opens Statements. Promises (pipelined pods) are in a Statement
of the session. Closing discards them, so between cycles the columns have the true state.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bindery.api.times import seconds
from bindery.kube.objects.queueaccess import AccessRefusal
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.access import refusal_of_job
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import DefectStage, of_job
from bindery.scheduler.fairness.shares import Shares
from bindery.scheduler.ledgers.base import Ledger, Operation, OperationKind
from bindery.scheduler.ledgers.nodes import NodeLedger
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.ledgers.users import UserLedger
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.domains import EVERYWHERE, Domain, DomainAsk
from bindery.scheduler.model.expected_ends import ExpectedEnds
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.labels import LabelColumns
from bindery.scheduler.model.nominations import Nominated
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape, unmet_text
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import Refusal, Rows, SortKey
from bindery.scheduler.planning import next_pods
from bindery.scheduler.planning.attempt_timer import AttemptKind, AttemptTimer, AttemptTooLongError
from bindery.scheduler.planning.filter_cache import FilterCache
from bindery.scheduler.planning.futures import Futures
from bindery.scheduler.planning.memory import Memory
from bindery.scheduler.planning.placement import Placement
from bindery.scheduler.planning.reports import StageReport
from bindery.scheduler.planning.reservations import Reservations
from bindery.scheduler.planning.run_times import RunTimeLimit, exceeded, spent_requests
from bindery.scheduler.planning.statement import Savepoint, Statement
from bindery.scheduler.plugins.registry import PluginSet
from bindery.scheduler.plugins.view import PackingStrategies
from bindery.scheduler.usage.source import PastUsage, nothing_past

L = TypeVar("L", bound=Ledger)
T = TypeVar("T")


class _JobGuard(AbstractContextManager[None, bool]):
    """Fails a job if its block raises; the outermost guard takes the blame for the time.

    No generator: it is slow in hot loops.
    """

    __slots__ = ("_is_outermost", "_job", "_kind", "_session")

    def __init__(self, session: "Session", job: Job, kind: AttemptKind) -> None:
        self._session, self._job, self._kind, self._is_outermost = session, job, kind, False

    def __enter__(self) -> None:
        self._is_outermost = self._session.timer.start(self._job, self._kind)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._is_outermost:
            self._session.timer.stop()
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, AttemptTooLongError):
            self._session.fail(self._job, error)
            return True
        if self._is_outermost:
            self._session.set_aside(self._job, error)
        return self._is_outermost


class Session:
    """The state of planning in one cycle. `now`: epoch seconds; `stopwatch`: see `Engine`."""

    def __init__(
        self,
        cluster: Cluster,
        plugins: PluginSet,
        filters: FilterCache,
        now: float,
        past: PastUsage | None = None,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.state: PlanState = cluster.state
        self.plugins = plugins
        self.now = now
        self._cluster = cluster
        self.memory = Memory(cluster, now)
        """The results of earlier cycles."""
        self._priorities: dict[Job, int] = {}
        self._queue_problems: dict[int, tuple[str, str] | None] = {}
        self._access: dict[Job, AccessRefusal | None] = {}
        self.refusals: dict[Job, Refusal] = {}
        """Job -> why it waits, for the jobs tried in this cycle."""
        self.failed: set[Job] = set()
        """Jobs whose planning raised an error. They are skipped until the session ends."""
        self.took_too_long: list[Job] = []
        """Jobs that were set aside in this session."""
        self.timer = AttemptTimer(stopwatch, cluster.failures.set_aside)
        self.last_places: dict[Job, dict[Uid, int]] = {}
        """Job whose gang was given up -> pod -> row of the node that it had found."""
        self.order: NDArray[np.intp] = self.state.nodes.in_name_order()
        """Position -> node row, nodes sorted by name."""
        self.position: NDArray[np.intp] = np.zeros(len(self.state.nodes.nodes), dtype=np.intp)
        """Node row -> position."""
        self.position[self.order] = np.arange(len(self.order))
        self._was_releasing = bool(self.state.nodes.releasing.any())
        self.node_ledger = NodeLedger(self.state.nodes)
        self.queue_ledger = QueueLedger(self.state.queues, self.state.nodes)
        offers = [plugin.offered_gpus(self.state) for plugin in plugins.gpu_offers]
        total = self.state.nodes.total(offers)
        self.shares = Shares(
            self.state,
            self.queue_ledger,
            total,
            past or nothing_past(),
            now,
            hopeless=spent_requests(self.state, now) if self.has_run_time_limits else None,
        )
        """The fair share of each queue."""
        self.users = UserLedger(self.state) if UserLedger.is_needed(self.state) else None
        """What users hold; None unless a job waits in a queue that is fair between its users."""
        self.ledgers: list[Ledger] = [self.node_ledger, self.queue_ledger]
        self.ledgers += [self.users] if self.users is not None else []
        self.ledgers += [plugin.ledger(self, self.state) for plugin in plugins.ledgers]
        self._ledger_by_type = {type(ledger): ledger for ledger in self.ledgers}
        self._nominated: dict[int, Nominated | None] = {}
        self._nominated_priorities = self.state.nominations.priorities()
        self.placement = Placement(self, filters)
        self._made: dict[type[Any], Any] = {}
        self._promises = self.statement()
        self.stale: list[Job] = []
        """Jobs below their minimum."""
        self.reservations = Reservations(self.state.nodes, self.node_ledger, self.queue_ledger)
        """Room that is reserved for gangs that do not fit now, and for later stages."""
        self.futures = Futures(self.state, cluster.future_task, self.passing, self.timer.check)
        """The pods of later stages that do not exist, while a plan is made for them."""
        self.stage_reports: dict[Job, list[StageReport]] = {}
        """Job -> the stages that it awaits."""

    # -- statements ----------------------------------------------------------------------------

    def statement(self) -> Statement:
        """Return a new Statement over all ledgers of the session."""
        return Statement(self.state, self.ledgers)

    def hold(self, statement: Statement) -> None:
        """Keep the promises of the open `statement` until the session ends; it is merged."""
        self._promises.merge([statement])

    def commit(self, statement: Statement) -> tuple[Operation, ...]:
        """Commit `statement`, keep its promises until the session ends, return its operations."""
        operations = statement.commit()
        self._promises.take_over(o for o in operations if o.kind is OperationKind.PIPELINE)
        return operations

    def undo(self, statement: Statement) -> None:
        """Discard `statement` step by step; an error of a ledger fails the job of that step."""
        for operation in reversed(statement.operations):
            # One step at a time: an error in one must not keep the others from being undone.
            with self.guarded(self.state.jobs[operation.task.job]):
                statement.rollback(Savepoint(statement.savepoint() - 1))
        statement.discard()

    def give_up(self, job: Job, operations: Sequence[Operation]) -> None:
        """Note the places of pods of the gang `job` in a plan that is about to be undone."""
        places = {o.task.uid: o.row for o in operations if o.task.job == job.key}
        # Several domains may be tried: the largest attempt has the best explanation.
        if len(places) > len(self.last_places.get(job, ())):
            self.last_places[job] = places

    @property
    def is_releasing(self) -> bool:
        """Whether any room is being released. If not, nothing can be pipelined."""
        return self._was_releasing or self.node_ledger.has_evicted

    def close(self) -> None:
        """End all promises and reservations, so that the columns have the true state again."""
        self.reservations.close()
        self.undo(self._promises)
        self.futures.clear()
        self.placement.close()
        self._made.clear()  # else it stays until the collector of reference cycles runs

    # -- between plugins -----------------------------------------------------------------------

    def ledger(self, kind: type[L]) -> L:
        """Return the ledger of this type.

        Raises:
            LookupError: no plugin offers one.
        """
        found = self._ledger_by_type[kind]
        assert isinstance(found, kind)
        return found

    def once(self, kind: type[T], make: Callable[["Session"], T]) -> T:
        """Return the one `kind` of this session; the first call makes it with `make`."""
        if kind not in self._made:
            with self.timer.paused():
                self._made[kind] = make(self)
        made = self._made[kind]
        assert isinstance(made, kind)
        return made

    def chosen_devices(self, task: Task, row: int) -> Sequence[str] | None:
        """Return the devices from the first `DeviceChoice` with an answer for `task`, or None."""
        choices = (each.choose_devices(self, task, row) for each in self.plugins.device_choices)
        return next((devices for devices in choices if devices is not None), None)

    def gpu_strategy(self) -> str | None:
        """Return the strategy of the first `GpuStrategy`; None if there is none."""
        return self.plugins.gpu_strategy

    @property
    def packing(self) -> PackingStrategies:
        """The configured strategies of packing."""
        return self.plugins.packing_strategies

    def is_packed(self, shape: Shape) -> bool:
        """Return whether a `Packing` plugin decides how pods of `shape` are packed."""
        return any(plugin.packs(self, shape) for plugin in self.plugins.packing)

    def nominated(self, job: Job) -> Nominated | None:
        """Return the nominated pods of other schedulers that count for pods of `job`."""
        if not self._nominated_priorities:  # nearly always
            return None
        counting = [each for each in self._nominated_priorities if each >= self.priority(job)]
        if not counting:
            return None
        least = counting[-1]
        if least not in self._nominated:
            self._nominated[least] = self.state.nominations.from_priority(least, self.state.nodes)
        return self._nominated[least]

    def passing(self, shape: Shape) -> BoolColumn:
        """Return a mask of the node rows that pass all `NodeFilter`s for pods of `shape`."""
        return self.placement.passing(shape)

    @property
    def reserved_in_queues(self) -> IntColumns | None:
        """Reserved amounts of queues: [resource, queue row]; None without reservations."""
        return self.reservations.kept_in_queues

    # -- errors --------------------------------------------------------------------------------

    def guarded(self, job: Job, kind: AttemptKind = AttemptKind.ANY) -> _JobGuard:
        """Return a context that turns an exception of its block into a refusal of `job`.

        Statements must be opened inside the block, so that an exception discards them.
        """
        return _JobGuard(self, job, kind)

    def fail(self, job: Job, error: Exception) -> None:
        """Skip `job` until the session ends: planning it raised `error`."""
        text = self._cluster.defects.note(DefectStage.PLANNING, of_job(job.key), error)
        self.failed.add(job)
        self.refusals[job] = Refusal(JobReason.INTERNAL_ERROR, f"planning it has failed: {text}")

    def set_aside(self, job: Job, error: AttemptTooLongError) -> None:
        """Skip `job` until the session ends, and in later ones for a while: it took too long."""
        why = self._cluster.failures.set_aside.add(job.key, error.limit_s, self.now)
        self.failed.add(job)
        self.took_too_long.append(job)
        self.refusals[job] = Refusal(JobReason.PLANNING_TOOK_TOO_LONG, why)

    # -- jobs and queues -----------------------------------------------------------------------

    def invalid(self, job: Job) -> Refusal | None:
        """Return why `job` cannot be planned now, whatever room there is; None if it can."""
        why = self.memory.set_aside(job)
        if why is not None:
            return Refusal(JobReason.PLANNING_TOOK_TOO_LONG, why)
        if not job.key.is_group:  # first: a tenant may have thousands of pods beyond the bounds
            for task in job.pending.values():
                if task.shape.refusal is not None:
                    text = f"pod {task.name}: {task.shape.refusal}"
                    return Refusal(task.shape.refusal_reason, text)
        answers = (plugin.invalid(self, job) for plugin in self.plugins.validity)
        return next(filter(None, answers), None)

    def priority(self, job: Job) -> int:
        """Return the priority of `job`."""
        priority = self._priorities.get(job)
        if priority is None:
            priority = self._priorities[job] = self._cluster.priority(job)
        return priority

    def priority_is_known(self, job: Job) -> bool:
        """Return whether the job's PriorityClass exists; True for a job without one."""
        known = self._cluster.priority_classes
        return job.priority_class is None or job.priority_class in known

    def never_preempts(self, job: Job) -> bool:
        """Return whether the job's PriorityClass has preemptionPolicy Never."""
        return self._cluster.priority_classes.never_preempts(job.priority_class)

    def task_refusal(self, task: Task) -> Refusal | None:
        """Return why `task` cannot be planned even with free nodes; None if it can."""
        shape = task.shape
        if shape.refusal is not None:
            return Refusal(shape.refusal_reason, shape.refusal)
        if not shape.needs:  # most pods: no plugin is called for them
            return None
        if not shape.needs <= self.plugins.supported:
            lacking = shape.needs - self.plugins.supported
            return Refusal(JobReason.NOT_SUPPORTED, unmet_text(lacking))
        answers = (plugin.invalid_task(self, task) for plugin in self.plugins.task_validity)
        return next(filter(None, answers), None)

    def pod(self, task: Task) -> Pod | None:
        """Return the pod of `task` if it is unbound and belongs to this scheduler; else None."""
        return self._cluster.pods.get(task.uid)

    def handed_over(self, plugin: str) -> Iterator[tuple[Uid, str, Mapping[str, Any]]]:
        """Yield pod, node name and the data of `plugin` for the binder.

        For pods with a BindRequest, and for pods that were bound while this process was running.
        """
        holds = self._cluster.holds
        for uid, hold in chain(holds.with_data(), holds.settled.items()):
            data = hold.data.get(plugin)
            if isinstance(data, dict):  # other clients can create requests too
                yield uid, hold.node_name, data

    def queue_row(self, job: Job) -> int:
        """Return the row of the job's queue."""
        return self.state.queues.row(job.queue)

    def queue_problem(self, row: int) -> tuple[str, str] | None:
        """Return why no job of the queue at `row` can be planned: (reason, text), or None."""
        if row not in self._queue_problems:
            self._queue_problems[row] = self.state.queues.problem(row)
        return self._queue_problems[row]

    def access_refusal(self, job: Job) -> AccessRefusal | None:
        """Return why `job` may not use its queue in this way; None if it may."""
        if job not in self._access:
            pods, namespaces = self._cluster.pods, self._cluster.namespaces
            self._access[job] = refusal_of_job(self.state.queues, job, pods, namespaces)
        return self._access[job]

    @cached_property
    def has_run_time_limits(self) -> bool:
        """Whether any queue or PodGroup limits run times."""
        return any(entry.max_run_time_s < math.inf for entry in self.state.queues.entries) or any(
            job.run_time_limit_s < math.inf for job in self.state.jobs.values()
        )

    def exceeded_limit(self, job: Job) -> RunTimeLimit | None:
        """Return the run time limit that `job` has reached; None if it may go on."""
        if not self.has_run_time_limits:  # asked for every job
            return None
        return exceeded(self.state.queues, job, self.now)

    def pending_since(self, job: Job) -> float:
        """Return the latest creation of `job` and its pending pods: seconds since the epoch."""
        times = [seconds(task.created) for task in job.pending.values()]
        return max((at for at in (*times, seconds(job.created)) if at is not None), default=0.0)

    def running_since(self, job: Job) -> float:
        """Return when the first pod of `job` was bound: seconds since the epoch, or 0."""
        times = [task.bound_at for task in job.tasks.values() if task.bound_at is not None]
        return min(times, default=0.0)

    def await_release(self, job: Job) -> None:
        """Let `job` wait for evicted pods to go: drop its reservation and set its refusal."""
        self.reservations.drop(job)
        self.refusals[job] = Refusal(JobReason.WAITS_FOR_RELEASE, "it waits for evicted pods to go")

    @cached_property
    def labels(self) -> LabelColumns:
        """Label values as columns over node rows."""
        return LabelColumns(self.state.nodes)

    @cached_property
    def cluster_total(self) -> NDArray[np.int64]:
        """Sum of allocatable over all nodes [resource]; at least 1, because it is a divisor."""
        return np.asarray(np.maximum(self.state.nodes.allocatable.sum(axis=1), 1))

    @cached_property
    def largest_allocatable(self) -> NDArray[np.int64]:
        """Maximum of allocatable over nodes [resource]; at least 1, because it is a divisor."""
        return np.asarray(np.maximum(self.state.nodes.allocatable.max(axis=1, initial=0), 1))

    @cached_property
    def expected_ends(self) -> ExpectedEnds:
        """When running pods with an expected run time end, as of the first call."""
        return ExpectedEnds(self.state, self.now)

    def job_domains(self, job: Job, freeable: IntColumns | None = None) -> Iterator[Domain]:
        """Yield the domains of the whole `job` from plugins, best first.

        `freeable`: see `DomainAsk`.
        """
        for plugin in self.plugins.domains:
            domains = plugin.domains(self, job)
            if domains is not None:
                yield from map(Domain, domains)
                return
        for offering in self.plugins.gang_domains:
            offered = offering.gang_domains(self, job, freeable)
            if offered is not None:
                yield from offered
                return
        yield EVERYWHERE

    def group_domains(self, ask: DomainAsk) -> Iterator[Domain]:
        """Yield the domains for the pods of `ask`, best first; none without a plugin for them."""
        for plugin in self.plugins.group_domains:
            yield from plugin.group_domains(self, ask)
            return

    def tree_positions(self, job: Job) -> NDArray[np.intp]:
        """Return node row -> position: rows that are close in the tree of `job` are adjacent."""
        constraint = job.topology
        if constraint is None and job.tree is not None:
            constraint = next((g.topology for g in job.tree.all_groups() if g.topology), None)
        if constraint is None:
            return self.position
        found = (plugin.tree_positions(self, constraint) for plugin in self.plugins.group_domains)
        return next(found, self.position)

    def no_domain_text(self, ask: DomainAsk) -> str:
        """Return why there is no domain for `ask`."""
        texts = (plugin.no_domain_text(self, ask) for plugin in self.plugins.group_domains)
        return next(texts, "no plugin serves its topology constraint")

    @cached_property
    def has_soft_taints(self) -> bool:
        """Whether any node has a taint of effect PreferNoSchedule."""
        nodes = filter(None, self.state.nodes.nodes)
        return any(t.effect == "PreferNoSchedule" for node in nodes for t in node.spec.taints or ())

    def scores(self, shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return the weighted sum of all plugins' scores of `rows` for pods of `shape`."""
        total = np.zeros(len(rows), dtype=np.float64)
        for plugin, weight in self.plugins.node_scores:
            scores = plugin.node_scores(self, shape, rows)
            if scores is not None:
                total += scores if weight == 1.0 else weight * scores
        return total

    def scores_by_plugin(self, shape: Shape, rows: Rows) -> dict[str, NDArray[np.float64]]:
        """Return the weighted scores of `rows` by plugin, without plugins that score none."""
        found = {
            plugin.name: (plugin.node_scores(self, shape, rows), weight)
            for plugin, weight in self.plugins.node_scores
        }
        parts = {name: weight * s for name, (s, weight) in found.items() if s is not None}
        rulings = self.plugins.placement_rules if shape.unruled is not None else ()
        for ruling, weight in rulings:
            rules = ruling.placement_rules(self, shape)
            scores = rules.scores() if rules is not None else None
            if scores is not None:
                parts[ruling.name] = weight * scores[rows]
        return parts

    def next_pods(self, job: Job, barred: next_pods.Barred | None = None) -> Sequence[Task]:
        """Return the next pods of `job` to place together: its gang, or one extra pod.

        Empty if too few are left without the `barred` pods.
        """
        return next_pods.next_pods(self, job, barred)

    def pods_in_order(self, job: Job) -> list[Task]:
        """Return the pending pods of `job` in the order of placement, without future ones."""
        pending = job.pending.values()
        tasks = [task for task in pending if not task.is_future] if job.stages else pending
        return sorted(tasks, key=self.pod_sort_key)

    def pod_sort_key(self, task: Task) -> SortKey:
        """Return the sort key of pods of a job for placement. Evictions use the reverse order."""
        return (*(p.pod_key(self, task) for p in self.plugins.pod_order), task.order)

    def job_sort_key(self, job: Job) -> SortKey:
        """Return the sort key of jobs of a queue for serving. Evictions use the reverse order."""
        return (*self.plugin_keys(job), job.created, job.key)

    def plugin_keys(self, job: Job) -> SortKey:
        """Return the part of the sort key of `job` that plugins decide."""
        return tuple(plugin.job_key(self, job) for plugin in self.plugins.job_order)
