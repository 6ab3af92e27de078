"""What the rules say against a victim: the reason in words of what the rules themselves refuse.

Asked by `victims` while it replays a plan, so that each victim is judged after those before it. The
verdicts are the rules' own; only the words are made here.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import GPU_RESOURCE
from bindery.kube.budgets import DisruptionBudget
from bindery.scheduler.actions.preempt import PreemptRule
from bindery.scheduler.actions.reclaim import ReclaimRule, is_reclaimable, levels_apart
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.protection import delay, min_runtime_s
from bindery.scheduler.solver.rules import Claim, Rule
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable

BUDGET: Final = JobReason.EVICTION_REFUSED
"""The reason of what a disruption budget protects."""

BlockingBudget = Callable[[Task], DisruptionBudget | None]
"""Returns the disruption budget that allows no eviction of a pod now, if there is one."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an action does not do it."""

    action: str
    reason: str
    """One CamelCase word."""
    message: str


class Judge:
    """Says what stands against victims for one claim. Made before anything is evicted."""

    def __init__(
        self,
        session: Session,
        claim: Claim,
        table: VictimTable,
        actions: Collection[str],
        blocking_budget: BlockingBudget,
    ) -> None:
        self._session = session
        self._blocking_budget = blocking_budget
        self.claim = claim
        self._actions = actions
        self._own = session.queue_row(claim.job)
        self._reclaims = ReclaimRule()
        self._rules: tuple[Rule, Rule] = (PreemptRule(), self._reclaims)
        self._eligible = [rule.eligible(session, claim, table) for rule in self._rules]
        self._refused = [rule.refuse(session, claim) for rule in self._rules]

    def action_for(self, unit: EvictionUnit) -> str:
        """Return the action that would take `unit`: preempt in its own queue, else reclaim."""
        return self._rule(unit).name

    def against_claim(self, unit: EvictionUnit) -> Iterator[Objection]:
        """Yield why the action that takes `unit` does nothing for the claim at all."""
        rule = self._rule(unit)
        if rule.name not in self._actions:
            yield Objection(
                rule.name, JobReason.ACTION_OFF, f"the action {rule.name} is not configured"
            )
        refusals = (self._refused[self._rules.index(rule)], delay(self._session, self.claim))
        for refusal in dict.fromkeys(refusals):
            if refusal is not None:
                yield Objection(rule.name, refusal.reason, refusal.message)

    def against(self, index: int, unit: EvictionUnit) -> Iterator[Objection]:
        """Yield what protects `unit`, which is the `index`th of the table, as things stand now."""
        rule, action = self._rule(unit), self.action_for(unit)
        before = [*self._protection(unit), *self._by_action(unit)]
        yield from (Objection(action, refusal.reason, refusal.message) for refusal in before)
        if before:
            return
        eligible = self._eligible[self._rules.index(rule)][index]
        if not eligible or not rule.allows(self._session, self.claim, unit):
            yield Objection(
                action, JobReason.NOT_ALLOWED, f"the rule of {action} does not allow it"
            )

    def against_plan(self, gone: Collection[EvictionUnit]) -> Iterator[Objection]:
        """Yield why a rule does not accept the plan as a whole; asked when all of it stands."""
        for rule in self._rules:
            units = [unit for unit in gone if self._rule(unit) is rule]
            if units and not rule.accepts(self._session, self.claim, units):
                text = "its queue would then be fuller, for its share, than the one that loses"
                yield Objection(rule.name, JobReason.WOULD_BE_FULLER, text)

    def hardness(self, table: VictimTable) -> NDArray[np.int64]:
        """Return how much would have to give way for each unit of `table` to go.

        0: nothing about the unit itself; 1: a disruption budget alone; 2: a rule of sharing or of
        time; 3: it is not preemptible. A budget is the first to give way: it changes by itself.
        """
        own = table.queue == self._own
        free = np.where(own, self._eligible[0], self._eligible[1])
        levels = np.where(free, 0, 2)
        for index, unit in enumerate(table.units):
            if any(not task.is_preemptible for task in unit.tasks):
                levels[index] = 3
            elif levels[index] == 0 and self.guard(unit):
                levels[index] = 1
        return levels

    def _rule(self, unit: EvictionUnit) -> Rule:
        return self._rules[0 if self._session.queue_row(unit.job) == self._own else 1]

    def _protection(self, unit: EvictionUnit) -> Iterator[Refusal]:
        """Yield what protects `unit` from everyone."""
        session = self._session
        if any(not task.is_preemptible for task in unit.tasks):
            priority = session.priority(unit.job)
            yield Refusal(JobReason.NON_PREEMPTIBLE, f"it is not preemptible (priority {priority})")
        guard = self.guard(unit)
        if guard:
            yield Refusal(BUDGET, guard)

    def guard(self, unit: EvictionUnit) -> str:
        """Return what keeps the pods of `unit` from being evicted now, in words; empty if nothing.

        A disruption budget, or what the API server has just answered.
        """
        for task in unit.tasks:
            budget = self._blocking_budget(task)
            if budget is not None:
                name = budget.full_name
                return f"PodDisruptionBudget {name} allows no eviction of pod {task.name} now"
        if any(task.uid in self._session.spared for task in unit.tasks):
            return "its eviction has just been refused"
        return ""

    def _by_action(self, unit: EvictionUnit) -> Iterator[Refusal]:
        if self.action_for(unit) == PreemptRule.name:
            yield from self._preempt(unit)
        else:
            yield from self._reclaim(unit)
        yield from self._min_runtime(unit)

    def _preempt(self, unit: EvictionUnit) -> Iterator[Refusal]:
        theirs = self._session.priority(unit.job)
        mine = self._session.priority(self.claim.job)
        if theirs >= mine:
            yield Refusal(
                JobReason.PRIORITY_NOT_LOWER,
                f"its priority {theirs} is not below the {mine} of the one that waits",
            )

    def _reclaim(self, unit: EvictionUnit) -> Iterator[Refusal]:
        session, row = self._session, self._session.queue_row(unit.job)
        levels = levels_apart(session, self._own, row)
        if levels is None:
            yield Refusal("RelatedQueue", "its queue and the other are one above the other")
            return
        name = session.state.queues.entries[row].name
        if not is_reclaimable(session, row, levels[1]):
            yield Refusal("NotReclaimable", f"queue {name}, or one above it, is not reclaimable")
        elif not self._reclaims.may_lose(session, self.claim, *levels):
            yield Refusal("WithinShare", self._within(levels[1]))
        elif not self._reclaims.allows(session, self.claim, unit):
            mine = session.state.queues.entries[levels[0]].name
            text = f"queue {mine} would be above its fair share, and fuller than {name} is left"
            yield Refusal(JobReason.WOULD_BE_FULLER, text)

    def _within(self, row: int) -> str:
        """Return in words that the queue at `row` holds no more than it may keep.

        Of what the claim asks for, GPUs are named if they are among it.
        """
        session, shares, axis = self._session, self._session.shares, self._session.state.axis
        requested = np.flatnonzero(shares.requested(self.claim.request))
        gpu = axis.index(GPU_RESOURCE)
        name = session.state.queues.entries[row].name
        if not len(requested):
            return f"queue {name} holds nothing that is divided of what is asked for"
        index = gpu if gpu in requested else int(requested[0])
        quota, share = shares.quota[index, row], shares.allocatable[index, row]
        units = int(session.queue_ledger.allocated[index, row])
        word, most = ("quota", quota) if units <= quota else ("share", share)
        if np.isinf(most):
            return f"queue {name} is within its {word}, which is unlimited"
        held, granted = axis.display(index, units), axis.display(index, int(most))
        amount = _gpus(granted) if index == gpu else f"{granted} {axis.names[index]}"
        return f"queue {name} is within its {word}: it holds {held} of {amount}"

    def _min_runtime(self, unit: EvictionUnit) -> Iterator[Refusal]:
        session, action = self._session, self.action_for(unit)
        row = session.queue_row(unit.job)
        least_s = min_runtime_s(session, self._own, row, action)
        runs_s = session.now - session.running_since(unit.job)
        if unit.is_core and runs_s < least_s:
            name = session.state.queues.entries[row].name
            yield Refusal(
                JobReason.MIN_RUNTIME,
                f"it has run for {runs_s:.0f} s of the {least_s:.0f} s that jobs of queue {name} "
                "run in peace",
            )


def _gpus(amount: str) -> str:
    return f"{amount} GPU" if amount == "1" else f"{amount} GPUs"
