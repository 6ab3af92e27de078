"""The session: the cluster during one cycle.

The engine opens it; actions and plugins use it. It borrows the columns of the cache, adds values
that are computed once a cycle, and opens Statements. Promises (pipelined pods) are in a Statement
of the session. Closing discards them, so between cycles the columns have the true state.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import DefectStage, of_job
from bindery.scheduler.fairness.shares import Shares
from bindery.scheduler.ledgers.base import Ledger, Operation, OperationKind
from bindery.scheduler.ledgers.nodes import NodeLedger
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.ledgers.users import UserLedger
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.holdings import is_exclusive
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning import next_pods
from bindery.scheduler.planning.account import GangAccount
from bindery.scheduler.planning.attempt_timer import AttemptKind, AttemptTimer, AttemptTooLongError
from bindery.scheduler.planning.calls import PackingPolicies, PluginCalls
from bindery.scheduler.planning.facts import SessionFacts
from bindery.scheduler.planning.filter_cache import FilterCache
from bindery.scheduler.planning.futures import Futures
from bindery.scheduler.planning.placement import Placement
from bindery.scheduler.planning.reports import StageReport
from bindery.scheduler.planning.reservations import Reservations
from bindery.scheduler.planning.run_times import spent_requests
from bindery.scheduler.planning.statement import Savepoint, Statement
from bindery.scheduler.plugins.interface.state import LedgerProvider, OffersGpus, SessionPreparation
from bindery.scheduler.plugins.registry import PluginSet
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


class Session(SessionFacts):
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
        super().__init__(cluster, now)
        self.plugins = plugins
        self.calls = PluginCalls(self, plugins)
        self.packing = PackingPolicies(self, plugins)
        self.refusals: dict[Job, Refusal] = {}
        """Job -> why it waits, for the jobs tried in this cycle."""
        self._valid: dict[Job, int] = {}
        """The jobs without a reason against planning them, with their `changes` at that time."""
        self.failed: set[Job] = set()
        """Jobs whose planning raised an error. They are skipped until the session ends."""
        self.took_too_long: list[Job] = []
        """Jobs that were set aside in this session."""
        self.timer = AttemptTimer(stopwatch, cluster.failures.set_aside)
        self.last_places: dict[Job, dict[Uid, int]] = {}
        """Job whose gang was given up -> pod -> row of the node that it had found."""
        self._was_releasing = bool(self.state.nodes.releasing.any())
        self.node_ledger = NodeLedger(self.state.nodes)
        self.queue_ledger = QueueLedger(self.state.queues, self.state.nodes)
        self._offers = [plugin.offered_gpus(self.state) for plugin in plugins.of(OffersGpus)]
        self.shares = Shares(
            self.state,
            self.queue_ledger,
            self.state.nodes.total(self._offers),
            past or nothing_past(),
            now,
            self._changes_of_pending,
        )
        """The fair share of each queue."""
        self.users = UserLedger(self.state) if UserLedger.is_needed(self.state) else None
        """What users hold; None unless a job waits in a queue that is fair between its users."""
        for plugin in plugins.of(SessionPreparation):
            plugin.prepare(self)
        self.ledgers: list[Ledger] = [self.node_ledger, self.queue_ledger]
        self.ledgers += [self.users] if self.users is not None else []
        self.ledgers += [plugin.ledger(self, self.state) for plugin in plugins.of(LedgerProvider)]
        self._ledger_by_type = {type(ledger): ledger for ledger in self.ledgers}
        self.placement = Placement(self, filters)
        self._made: dict[type[Any], Any] = {}
        self._promises = self.statement()
        self.stale: list[Job] = []
        """Jobs below their minimum."""
        self.reservations = Reservations(self.state.nodes, self.node_ledger, self.queue_ledger)
        """Room that is reserved for gangs that do not fit now, and for later stages."""
        self.account = GangAccount(self)
        """What gangs hold beside their pods."""
        self.ledgers += [self.reservations, self.account]
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
        """Return the ledger of this type; raises LookupError if no plugin offers one."""
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

    def passing(self, shape: Shape) -> BoolColumn:
        """Return a mask of the node rows that pass all `NodeFilter`s for pods of `shape`."""
        return self.placement.passing(shape)

    def _changes_of_pending(self) -> IntColumns | None:
        """Return by how much what queues want differs from the requests: [resource, queue]."""
        changes = self.account.changes_of_pending()
        if not self.has_run_time_limits:
            return changes
        spent = spent_requests(self.state, self.now)
        return -spent if changes is None else changes - spent

    @cached_property
    def offered(self) -> IntColumns:
        """What nodes offer to queues, less pods of other schedulers: [resource, node]."""
        return self.state.nodes.offered(np.arange(len(self.state.nodes.nodes)), self._offers)

    def adding(self, job: Job, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return those of `tasks` of `job` that add to what its queue holds.

        The others go into an exclusive domain that is charged already.
        """
        if not job.is_constrained or not is_exclusive(job):
            return tasks
        # Most gangs that wait have no domain yet, and a gang may have thousands of sub-groups.
        if not job.unit_count and job.key not in self.calls.held_domains():
            return tasks
        kinds = {(task.sub_group, task.exclusive_unit): task for task in tasks}
        inside = {kind for kind, task in kinds.items() if self.calls.has_held_domain(task)}
        return [task for task in tasks if (task.sub_group, task.exclusive_unit) not in inside]

    @property
    def stage_rooms(self) -> list[tuple[Job, tuple[int, ...]]]:
        """The gangs with room that is kept for later stages, and the node rows of the room."""
        return [(each.job, each.rows) for each in self.reservations.of_stages()]

    @property
    def reserved_in_queues(self) -> IntColumns | None:
        """Reserved amounts of queues: [resource, queue row]; None without reservations."""
        return self.reservations.kept_in_queues

    def kept_in_queues(self) -> IntColumns:
        """Return what queues hold beside pods, and what is reserved: [resource, queue]."""
        held, reserved = self.account.by_queue(), self.reserved_in_queues
        return held if reserved is None else held + reserved

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
        self._valid.pop(job, None)
        self.took_too_long.append(job)
        self.refusals[job] = Refusal(JobReason.PLANNING_TOOK_TOO_LONG, why)

    # -- jobs and queues -----------------------------------------------------------------------

    def invalid(self, job: Job) -> Refusal | None:
        """Return why `job` cannot be planned now, whatever room there is; None if it can."""
        if self._valid.get(job) == job.changes:  # each action asks for all jobs
            return None
        refusal = self._find_invalid(job)
        if refusal is None:
            self._valid[job] = job.changes
        return refusal

    def _find_invalid(self, job: Job) -> Refusal | None:
        why = self.memory.set_aside(job)
        if why is not None:
            return Refusal(JobReason.PLANNING_TOOK_TOO_LONG, why)
        if not job.key.is_group:  # first: a tenant may have thousands of pods beyond the bounds
            for task in job.pending.values():
                if task.shape.refusal is not None:
                    text = f"pod {task.name}: {task.shape.refusal}"
                    return Refusal(task.shape.refusal_reason, text)
        return self.calls.invalid(job)

    def await_release(self, job: Job) -> None:
        """Let `job` wait for evicted pods to go: drop its reservation and set its refusal."""
        self.reservations.drop(job)
        self.refusals[job] = Refusal(JobReason.WAITS_FOR_RELEASE, "it waits for evicted pods to go")

    def next_pods(self, job: Job, barred: next_pods.Barred | None = None) -> Sequence[Task]:
        """Return the next pods of `job` to place together: its gang, or one extra pod.

        Empty if too few are left without the `barred` pods.
        """
        return next_pods.next_pods(self, job, barred)
