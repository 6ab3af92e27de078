"""Carries out the evictions of committed plans, through the Eviction API.

Disruption budgets and grace periods are honoured. The evictions of one plan are carried out in the
plan's order, after all of them have been tried without effect: if one is refused the plan is
dropped and nothing more of it is evicted. Evictions that count against the same budget go one after
the other, over all plans, as the API server makes those that meet wait for half a second; others go
at once. What was refused is taken over by the engine, which spares who stays.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol
from weakref import WeakValueDictionary

import structlog

from bindery.kube.budgets import DisruptionBudget
from bindery.kube.client import Client
from bindery.kube.errors import ApiError, ConflictError, KubeError, NotFoundError
from bindery.kube.events import EventRecorder, ObjectReference
from bindery.scheduler.commit.metrics import EVICTIONS
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import Task, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.reports import RefusedPlan

CONCURRENT_CALLS = 16
"""Evictions asked for at once, over all plans: more could make the API server throttle them, which
looks like a budget that forbids them."""

_log = structlog.get_logger()


BudgetKey = tuple[str, str]
"""Namespace and name of a disruption budget."""


class KnownBudgets(Protocol):
    """What is known of disruption budgets; the cluster implements it."""

    def budgets_of(self, task: Task) -> Sequence[DisruptionBudget]:
        """Return the disruption budgets that count the pod of `task`, by name."""

    @property
    def budget_easings(self) -> int:
        """How often a disruption budget has allowed more evictions than before."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why an eviction was refused."""

    text: str
    easings: int
    """Of budgets, when it was asked for."""
    retry_after_s: float | None = None
    """When it may be otherwise, as of a budget that has not been counted yet."""


class _Course:
    """How far the evictions of one plan have come."""

    def __init__(self, plan: Sequence[Eviction]) -> None:
        self.plan = plan
        self._gone: set[Uid] = set()
        self._refused: tuple[Eviction, _Problem] | None = None

    @property
    def is_dropped(self) -> bool:
        """Whether an eviction was refused, so that no more of them are asked for."""
        return self._refused is not None

    def note(self, eviction: Eviction, problem: _Problem | None) -> None:
        """Take note of the answer to one eviction; `problem`: why it was refused."""
        if problem is None:
            self._gone.add(eviction.task.uid)
        elif self._refused is None:
            self._refused = eviction, problem

    def refused(self) -> RefusedPlan | None:
        """Return what is left of the plan, if it was dropped."""
        if self._refused is None:
            return None
        at, problem = self._refused
        left = [each for each in self.plan if each.task.uid not in self._gone]
        return _refused(at, left, problem, is_begun=bool(self._gone))


class Evictor:
    """Evicts in the background; what was refused is kept in `refused` for the loop to take."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        wake: Callable[[], None],
        budgets: KnownBudgets,
    ) -> None:
        self._client = client
        self._budgets = budgets
        self._turns: WeakValueDictionary[BudgetKey, asyncio.Lock] = WeakValueDictionary()
        """By budget: held by the eviction that counts against it."""
        self._events = events
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = asyncio.Semaphore(CONCURRENT_CALLS)
        self.refused: list[RefusedPlan] = []
        self.evicted: list[Eviction] = []
        """What has been carried out, for the loop to take."""

    def submit(self, evictions: Sequence[Eviction]) -> None:
        """Carry out `evictions`, plan by plan."""
        for _, plan in groupby(evictions, key=lambda eviction: eviction.preemptor):
            task = asyncio.create_task(self._carry_out(list(plan)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until everything submitted has been carried out, or refused."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Ask for no more evictions, as another scheduler leads: what is left of plans stays."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, plan: Sequence[Eviction]) -> None:
        try:
            refused = await self._try(plan) or await self._evict_in_order(plan)
        except asyncio.CancelledError:
            text = "another scheduler leads now"
            self.refused.append(RefusedPlan(plan[0], tuple(plan), text, is_begun=False))
            raise
        if refused is not None:
            self._drop(refused)

    async def _try(self, plan: Sequence[Eviction]) -> RefusedPlan | None:
        """Ask whether each eviction would be refused by itself; evict nobody."""
        problems = await asyncio.gather(*(self._evict(each, dry_run=True) for each in plan))
        for eviction, problem in zip(plan, problems, strict=True):
            if problem is not None:
                return _refused(eviction, plan, problem, is_begun=False)
        return None

    async def _evict_in_order(self, plan: Sequence[Eviction]) -> RefusedPlan | None:
        """Evict the first of `plan` alone, then the others; by budget those that have one."""
        course = _Course(plan)
        await self._evict_batch(course, plan[:1])
        lanes: defaultdict[tuple[BudgetKey, ...], list[Eviction]] = defaultdict(list)
        for eviction in plan[1:]:
            lanes[self._budgets_of(eviction.task)].append(eviction)
        await asyncio.gather(*(self._evict_lane(course, *lane) for lane in lanes.items()))
        return course.refused()

    async def _evict_lane(
        self, course: _Course, budgets: Sequence[BudgetKey], lane: Sequence[Eviction]
    ) -> None:
        """Evict `lane` in order: one by one under `budgets`, else in batches that double in size.

        The API server takes 0.1 s for an eviction, however many it is asked for at once. But a
        batch is not called back when one of it is refused, so small plans go nearly one by one.
        """
        start, size = 0, 1 if budgets else 2
        while start < len(lane) and not course.is_dropped:
            await self._evict_batch(course, lane[start : start + size])
            start, size = start + size, 1 if budgets else min(2 * size, CONCURRENT_CALLS)

    async def _evict_batch(self, course: _Course, batch: Sequence[Eviction]) -> None:
        await asyncio.gather(*(self._evict_in_turn(course, eviction) for eviction in batch))

    async def _evict_in_turn(self, course: _Course, eviction: Eviction) -> None:
        """Evict one pod when no other eviction counts against its budgets at the moment."""
        async with AsyncExitStack() as turns:
            for budget in self._budgets_of(eviction.task):
                await turns.enter_async_context(self._turns.setdefault(budget, asyncio.Lock()))
            if not course.is_dropped:
                course.note(eviction, await self._evict(eviction, dry_run=False))

    def _budgets_of(self, task: Task) -> tuple[BudgetKey, ...]:
        """Return the keys of the budgets that count `task`, in the order in which they are taken.

        Always the same order, so that no two evictions wait for each other.
        """
        metas = (budget.metadata for budget in self._budgets.budgets_of(task))
        return tuple((meta.namespace, meta.name) for meta in metas)

    async def _evict(self, eviction: Eviction, *, dry_run: bool) -> _Problem | None:
        """Evict one pod; return why that was refused, None if it goes or is gone."""
        task, easings = eviction.task, self._budgets.budget_easings
        try:
            async with self._calls:
                await self._client.evict(task.namespace, task.name, task.uid, dry_run=dry_run)
        except (NotFoundError, ConflictError):  # gone, and perhaps another has its name
            return None
        except ApiError as error:
            return _Problem(error.message, easings, error.retry_after_s)
        except KubeError as error:
            return _Problem(str(error), easings)
        if not dry_run:
            EVICTIONS.labels("evicted").inc()
            self.evicted.append(eviction)
            _log.info("evicted", pod=task.name, namespace=task.namespace, reason=eviction.reason)
            pod = ObjectReference("v1", "Pod", task.namespace, task.name, task.uid)
            self._events.normal(pod, "Evicted", eviction.reason)
        return None

    def _drop(self, plan: RefusedPlan) -> None:
        EVICTIONS.labels("refused").inc()
        task, problem = plan.refused.task, plan.problem
        _log.warning("eviction refused", pod=task.name, namespace=task.namespace, why=problem)
        pod = ObjectReference("v1", "Pod", task.namespace, task.name, task.uid)
        self._events.warning(pod, JobReason.EVICTION_REFUSED, f"{plan.refused.reason}: {problem}")
        self.refused.append(plan)
        self._wake()


def _refused(
    at: Eviction, left: Sequence[Eviction], problem: _Problem, *, is_begun: bool
) -> RefusedPlan:
    return RefusedPlan(
        at, tuple(left), problem.text, is_begun, problem.retry_after_s, problem.easings
    )
