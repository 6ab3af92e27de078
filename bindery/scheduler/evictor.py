"""Carries out the evictions of committed plans, through the Eviction API.

Disruption budgets and grace periods are honoured. The evictions of one plan are carried out batch
by batch in the plan's order, after all of them have been tried without effect: if one is refused
the plan is dropped and nothing more of it is evicted. Taken over by the engine, which spares who
stays.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import ApiError, ConflictError, KubeError, NotFoundError
from bindery.kube.events import EventRecorder, ObjectReference
from bindery.scheduler.metrics import EVICTIONS
from bindery.scheduler.reports import Eviction, RefusedPlan

CONCURRENT_CALLS = 16
"""Evictions asked for at once, over all plans: more could make the API server throttle them, which
looks like a budget that forbids them."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why an eviction was refused."""

    text: str
    retry_after_s: float | None = None
    """When it may be otherwise, as of a budget that has not been counted yet."""


class Evictor:
    """Evicts in the background; what was refused is kept in `refused` for the loop to take."""

    def __init__(self, client: Client, events: EventRecorder, wake: Callable[[], None]) -> None:
        self._client = client
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
        """Evict batch after batch, the first one alone and each twice as large as the last.

        The API server takes 0.1 s for an eviction, however many it is asked for at once. But a
        batch is not called back when one of it is refused, so small plans go nearly one by one.
        """
        start, size = 0, 1
        while start < len(plan):
            batch = plan[start : start + size]
            problems = await asyncio.gather(*(self._evict(each, dry_run=False) for each in batch))
            answers = list(zip(batch, problems, strict=True))
            refused = [(each, problem) for each, problem in answers if problem is not None]
            if refused:
                is_begun = start > 0 or len(refused) < len(batch)
                left = (*(each for each, _ in refused), *plan[start + size :])
                first, problem = refused[0]
                return _refused(first, left, problem, is_begun=is_begun)
            start, size = start + size, min(2 * size, CONCURRENT_CALLS)
        return None

    async def _evict(self, eviction: Eviction, *, dry_run: bool) -> _Problem | None:
        """Evict one pod; return why that was refused, None if it goes or is gone."""
        task = eviction.task
        try:
            async with self._calls:
                await self._client.evict(task.namespace, task.name, task.uid, dry_run=dry_run)
        except (NotFoundError, ConflictError):  # gone, and perhaps another has its name
            return None
        except ApiError as error:
            return _Problem(error.message, error.retry_after_s)
        except KubeError as error:
            return _Problem(str(error))
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
        self._events.warning(pod, "EvictionRefused", f"{plan.refused.reason}: {problem}")
        self.refused.append(plan)
        self._wake()


def _refused(
    at: Eviction, left: Sequence[Eviction], problem: _Problem, *, is_begun: bool
) -> RefusedPlan:
    return RefusedPlan(at, tuple(left), problem.text, is_begun, problem.retry_after_s)
