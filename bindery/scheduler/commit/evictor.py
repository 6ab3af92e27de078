"""Executes the evictions of committed plans through the Eviction API.

The API server applies disruption budgets and grace periods. A plan that needs more of a budget than
the budget is known to allow is dropped. All evictions of a plan are first tried as a dry run. Then
the pods that get the room are nominated for their nodes, so that another leader can go on with the
plan. If the claimant is gone by now, or has got other room, the plan is dropped. Then the evictions
are executed in the order of the plan. If one is refused, the plan is dropped and its other pods
stay. Evictions under the same budget run one after another, over all plans, because the API server
delays concurrent ones by half a second. Other evictions run concurrently. The engine takes the
refused plans and does not choose their pods again for a while.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import groupby
from weakref import WeakValueDictionary

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import ApiError, ConflictError, KubeError, NotFoundError
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.budgets import Budgets
from bindery.scheduler.commit.metrics import EVICTIONS
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Task, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.reports import RefusedPlan

CONCURRENT_CALLS = 16
"""Maximum number of concurrent evictions, over all plans.

With more, the API server may answer 429 to limit the rate, as it does for a budget that forbids
an eviction."""

_log = structlog.get_logger()


BudgetKey = tuple[str, str]
"""Namespace and name of a disruption budget."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why an eviction was refused."""

    text: str
    easings: int
    """`Budgets.easings` before the request."""
    retry_after_s: float | None = None
    """The API server's Retry-After, as for a budget that is not computed yet; None if none."""


class _NeedlessError(Exception):
    """The plan of evictions is not needed any more, and none of them has been executed."""


class _Progress:
    """The progress of the evictions of one plan."""

    def __init__(self, plan: Sequence[Eviction]) -> None:
        self.plan = plan
        self._gone: set[Uid] = set()
        self._refused: tuple[Eviction, _Problem] | None = None

    @property
    def is_dropped(self) -> bool:
        """Whether an eviction was refused; no further evictions of the plan start."""
        return self._refused is not None

    def note(self, eviction: Eviction, problem: _Problem | None) -> None:
        """Record the result of one eviction; `problem` if it was refused."""
        if problem is None:
            self._gone.add(eviction.task.uid)
        elif self._refused is None:
            self._refused = eviction, problem

    def refused(self) -> RefusedPlan | None:
        """Return the rest of the plan if it was dropped; else None."""
        if self._refused is None:
            return None
        at, problem = self._refused
        left = [each for each in self.plan if each.task.uid not in self._gone]
        return _refused(at, left, problem, is_begun=bool(self._gone))


class Evictor:
    """Evicts pods in the background. The loop takes refused plans from `refused`."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        wake: Callable[[], None],
        budgets: Budgets,
        promised: Callable[[JobKey], Sequence[tuple[Pod, str]] | None] = lambda _job: (),
    ) -> None:
        """`promised`: returns the pods of a job to nominate, with their nodes; None: no promise."""
        self._client = self._client_of_all_terms = client
        self._budgets = budgets
        self._promised = promised
        self._turns: WeakValueDictionary[BudgetKey, asyncio.Lock] = WeakValueDictionary()
        """Budget -> the lock of the eviction that runs under it."""
        self._events = events
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self._trying: list[JobKey] = []
        """The claimants of the plans in their dry run."""
        self._calls = asyncio.Semaphore(CONCURRENT_CALLS)
        self.refused: list[RefusedPlan] = []
        self.evicted: list[Eviction] = []
        """The executed evictions, for the loop to take."""

    def begin(self, leadership: Leadership) -> None:
        """Evict as long as `leadership` is valid."""
        self._client = self._client_of_all_terms.within(leadership.is_valid)

    def submit(self, evictions: Sequence[Eviction]) -> None:
        """Execute `evictions` in the background, plan by plan."""
        # The evictions of a plan follow each other and have the same preemptor.
        for _, plan in groupby(evictions, key=lambda eviction: eviction.preemptor):
            task = asyncio.create_task(self._carry_out(list(plan)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until all submitted evictions have been executed or refused."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Start no more evictions, as another scheduler leads; the rest of the plans is dropped."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def undecided(self) -> frozenset[JobKey]:
        """The claimants of plans in their dry run, and of refused plans in `refused`.

        The next cycles still promise them the room, which they may not get.
        """
        return frozenset((*self._trying, *(plan.refused.preemptor for plan in self.refused)))

    async def _carry_out(self, plan: Sequence[Eviction]) -> None:
        try:
            refused = await self._prepare(plan)
            if refused is None:
                refused = await self._evict_in_order(plan)
        except asyncio.CancelledError:
            text = "another scheduler leads now"
            self.refused.append(RefusedPlan(plan[0], tuple(plan), text, is_begun=False))
            raise
        except _NeedlessError as why:
            _log.info("plan dropped", claimant=str(plan[0].preemptor), why=str(why))
            # The victims may be chosen for others at once.
            self.refused.append(RefusedPlan(plan[0], tuple(plan), str(why), False, 0.0))
            self._wake()
            return
        if refused is not None:
            self._drop(refused)

    async def _prepare(self, plan: Sequence[Eviction]) -> RefusedPlan | None:
        """Try a plan and nominate the pods of its claimant; return the plan if it is refused.

        Raises:
            _NeedlessError: meanwhile, other room has become free for the claimant, or it is gone.
        """
        claimant = plan[0].preemptor
        self._trying.append(claimant)
        try:
            is_promised = self._promised(claimant) is not None
            refused = await self._try(plan)
            promised = self._promised(claimant)
            if refused is None and promised is not None:
                await self._nominate(promised)
            elif refused is None and is_promised:
                raise _NeedlessError(f"{claimant} has room now, or does not want it")
            return refused
        finally:
            self._trying.remove(claimant)

    async def _try(self, plan: Sequence[Eviction]) -> RefusedPlan | None:
        """Try each eviction as a dry run; return the refused plan, or None if all may go."""
        beyond = self._beyond_budgets(plan)
        if beyond is not None:
            return _refused(*beyond, is_begun=False)
        problems = await asyncio.gather(*(self._evict(each, dry_run=True) for each in plan))
        for eviction, problem in zip(plan, problems, strict=True):
            if problem is not None:
                return _refused(eviction, plan, problem, is_begun=False)
        return None

    def _beyond_budgets(
        self, plan: Sequence[Eviction]
    ) -> tuple[Eviction, Sequence[Eviction], _Problem] | None:
        """Return the first eviction of `plan` that exceeds a budget, and why; None if none does.

        A dry run passes for each pod alone, however many the plan evicts under one budget. Begun,
        such a plan would lose pods for nothing, again whenever its controller replaces them.
        """
        easings, used = self._budgets.easings, Counter[BudgetKey]()
        for eviction in plan:
            if not self._budgets.apply_to(eviction.task):
                continue
            for budget in self._budgets.of(eviction.task):
                key = budget.metadata.namespace, budget.metadata.name
                used[key] += 1
                if 1 < used[key] > budget.status.disruptions_allowed:
                    text = f"the plan evicts more pods than disruption budget {key[1]} allows"
                    return eviction, plan, _Problem(text, easings)
        return None

    async def _nominate(self, promised: Sequence[tuple[Pod, str]]) -> None:
        """Write the promised nodes of pods, from which a new leader goes on.

        Raises:
            _NeedlessError: one of these pods does not exist any more.
        """
        exist = await asyncio.gather(*(self._nominate_pod(pod, node) for pod, node in promised))
        if not all(exist):
            raise _NeedlessError("a pod that it makes room for is gone")

    async def _nominate_pod(self, pod: Pod, node_name: str) -> bool:
        """Nominate a pod if it waits; return False if it does not exist any more."""
        meta, status = pod.metadata, {"status": {"nominatedNodeName": node_name}}
        # The pod may have changed, and may be bound by now.
        version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        exists = True

        def changed(found: Pod) -> Mapping[str, object] | None:
            nonlocal exists
            exists = found.metadata.uid == meta.uid
            return status if exists and not found.spec.node_name else None

        name, namespace = meta.name, meta.namespace
        try:
            async with self._calls:
                try:
                    body = {"metadata": version, **status}
                    await self._client.patch(
                        PODS, name, body, namespace=namespace, subresource="status"
                    )
                except ConflictError:
                    await self._client.update(PODS, name, namespace, changed, subresource="status")
        except NotFoundError:
            return False
        except KubeError as error:
            log_failure(_log, "pod not nominated", error, pod=meta.name)
        return exists

    async def _evict_in_order(self, plan: Sequence[Eviction]) -> RefusedPlan | None:
        """Evict the first of `plan` alone, then the others, grouped by their budgets."""
        progress = _Progress(plan)
        # A dry run passes under a budget that allows only some of the plan's evictions. The first
        # eviction alone finds most other refusals before a second pod is lost.
        await self._evict_batch(progress, plan[:1])
        lanes: defaultdict[tuple[BudgetKey, ...], list[Eviction]] = defaultdict(list)
        for eviction in plan[1:]:
            lanes[self._budgets_of(eviction.task)].append(eviction)
        await asyncio.gather(*(self._evict_lane(progress, *lane) for lane in lanes.items()))
        return progress.refused()

    async def _evict_lane(
        self, progress: _Progress, budgets: Sequence[BudgetKey], lane: Sequence[Eviction]
    ) -> None:
        """Evict `lane` in order: one by one under `budgets`, else in batches that double in size.

        The API server takes 0.1 s per eviction, also for concurrent ones. But the rest of a batch
        is still evicted if one of it is refused, so the batches start small.
        """
        start, size = 0, 1 if budgets else 2
        while start < len(lane) and not progress.is_dropped:
            await self._evict_batch(progress, lane[start : start + size])
            start, size = start + size, 1 if budgets else min(2 * size, CONCURRENT_CALLS)

    async def _evict_batch(self, progress: _Progress, batch: Sequence[Eviction]) -> None:
        await asyncio.gather(*(self._evict_in_turn(progress, eviction) for eviction in batch))

    async def _evict_in_turn(self, progress: _Progress, eviction: Eviction) -> None:
        """Evict one pod when no other eviction runs under its budgets."""
        async with AsyncExitStack() as turns:
            for budget in self._budgets_of(eviction.task):
                await turns.enter_async_context(self._turns.setdefault(budget, asyncio.Lock()))
            if not progress.is_dropped:
                progress.note(eviction, await self._evict(eviction, dry_run=False))

    def _budgets_of(self, task: Task) -> tuple[BudgetKey, ...]:
        """Return the keys of the budgets that cover `task`, in the order of locking.

        The order is always the same, which avoids deadlocks.
        """
        metas = (budget.metadata for budget in self._budgets.of(task))
        return tuple((meta.namespace, meta.name) for meta in metas)

    async def _evict(self, eviction: Eviction, *, dry_run: bool) -> _Problem | None:
        """Evict one pod; return why it was refused, None if it is being deleted or gone."""
        task, easings = eviction.task, self._budgets.easings
        try:
            async with self._calls:
                await self._client.evict(task.namespace, task.name, task.uid, dry_run=dry_run)
        except (NotFoundError, ConflictError):  # gone; a conflict means a new pod with its name
            return None
        except ApiError as error:
            return _Problem(error.message, easings, error.retry_after_s)
        except KubeError as error:
            return _Problem(str(error), easings)
        if not dry_run:
            EVICTIONS.labels("evicted").inc()
            self.evicted.append(eviction)
            _log.info(
                "evicted",
                pod=task.name,
                namespace=task.namespace,
                reason=eviction.reason,
                claimant=str(eviction.preemptor),
            )
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
