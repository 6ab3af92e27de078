"""The objections to a victim: the refusals of the rules, budgets, and actions that are off.

`victims` asks while it replays a plan, so each victim is judged after those before it.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.budgets import DisruptionBudget
from bindery.scheduler.actions.preempt import PreemptRule
from bindery.scheduler.actions.reclaim import ReclaimRule
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import Rule
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable, asks_counted

BUDGET: Final = JobReason.EVICTION_REFUSED
"""The reason for pods that a disruption budget protects."""

BlockingBudget = Callable[[Task], DisruptionBudget | None]
"""Returns the disruption budget that protects a pod from eviction now; None if there is none."""


@dataclass(frozen=True, slots=True)
class Objection:
    """A reason why an action does not evict."""

    action: str
    reason: str
    """One CamelCase word."""
    message: str


class Judge:
    """Lists the objections to victims of one claim. Made before anything is evicted."""

    def __init__(
        self,
        session: Session,
        claim: RoomClaim,
        table: VictimTable,
        actions: Collection[str],
        blocking_budget: BlockingBudget,
    ) -> None:
        self._session = session
        self._blocking_budget = blocking_budget
        self.claim = claim
        self._actions = actions
        self._own = session.queue_row(claim.job)
        self._rules: tuple[Rule, Rule] = (PreemptRule(), ReclaimRule())
        self._eligible = [rule.eligible(session, claim, table) for rule in self._rules]
        # Now, because the plan will count the pods of the claim as held by their queue.
        self._against_claim = [tuple(rule.against_claim(session, claim)) for rule in self._rules]

    def action_for(self, unit: EvictionUnit) -> str:
        """Return the action that would take `unit`: preempt in its own queue, else reclaim."""
        return self._rule(unit).name

    def against_claim(self, unit: EvictionUnit) -> Iterator[Objection]:
        """Yield why the action for `unit` makes no room for the claim at all."""
        rule = self._rule(unit)
        if rule.name not in self._actions:
            yield Objection(
                rule.name, JobReason.ACTION_OFF, f"the action {rule.name} is not configured"
            )
        for refusal in self._against_claim[self._rules.index(rule)]:
            yield Objection(rule.name, refusal.reason, refusal.message)

    def is_eligible(self, index: int, unit: EvictionUnit) -> bool:
        """Return whether `unit`, at `index` of the table, could go before anything was evicted."""
        return bool(self._eligible[self._rules.index(self._rule(unit))][index])

    def against(self, unit: EvictionUnit) -> Iterator[Objection]:
        """Yield what protects `unit`, after the evictions that the session has now."""
        rule = self._rule(unit)
        for refusal in self._protection(unit):
            yield Objection(rule.name, refusal.reason, refusal.message)
        if rule.name in self._session.state.disruption.spare_from and self._asks(unit):
            text = "it asks to be left in place, by an annotation or by local data"
            yield Objection(rule.name, JobReason.DO_NOT_DISRUPT, text)
        for found in rule.against_unit(self._session, self.claim, unit):
            yield Objection(rule.name, found.reason, found.text())

    def against_plan(
        self, gone: Collection[EvictionUnit], killed: Collection[EvictionUnit]
    ) -> Iterator[Objection]:
        """Yield why no action would make the whole plan. The session must have all of it.

        `gone`: all units of the plan; `killed`: those without another place.
        """
        preempts, reclaims = self._rules
        job = self.claim.job
        if not self._session.calls.is_starving(job):
            for action in sorted({self.action_for(unit) for unit in gone}):
                yield Objection(action, JobReason.HELD_BACK, "a plugin allows no evictions for it")
        if len({self.action_for(unit) for unit in gone}) > 1:
            text = (
                f"{preempts.name} takes pods of its own queue only and {reclaims.name} pods of "
                "others only, and neither makes enough room alone"
            )
            yield Objection(reclaims.name, JobReason.NOT_ALLOWED, text)
        for rule in self._rules:
            units = [unit for unit in killed if self._rule(unit) is rule]
            for refusal in rule.against_plan(self._session, self.claim, units) if units else ():
                yield Objection(rule.name, refusal.reason, refusal.message)

    def hardness(self, table: VictimTable) -> NDArray[np.int64]:
        """Return for each unit of `table` the hardest rule that protects it: int [unit].

        0: none; 1: a disruption budget; 2: a rule of sharing or time; 3: it is not preemptible.
        Budgets are the softest, because they change without anyone's action.
        """
        own = table.queue == self._own
        free = np.where(own, self._eligible[0], self._eligible[1])
        levels = np.where(free, 0, 2)
        for index, unit in enumerate(table.units):
            if unit.is_pinned:
                levels[index] = 3
            elif levels[index] == 0 and self.guard(unit):
                levels[index] = 1
        return levels

    def _asks(self, unit: EvictionUnit) -> bool:
        counted = asks_counted(self._session.state.disruption)
        now = self._session.now
        return any(task.asks_at(now) & counted for task in unit.tasks)

    def _rule(self, unit: EvictionUnit) -> Rule:
        return self._rules[0 if self._session.queue_row(unit.job) == self._own else 1]

    def _protection(self, unit: EvictionUnit) -> Iterator[Refusal]:
        """Yield what protects `unit` from every action."""
        session = self._session
        if unit.is_pinned:
            priority = session.priority(unit.job)
            yield Refusal(JobReason.NON_PREEMPTIBLE, f"it is not preemptible (priority {priority})")
        guard = self.guard(unit)
        if guard:
            yield Refusal(BUDGET, guard)

    def guard(self, unit: EvictionUnit) -> str:
        """Return the message about what prevents the eviction of `unit` now; empty if nothing does.

        Either a disruption budget, or a recent refusal of the API server.
        """
        # The budget first: it explains more than the refusal that it caused.
        for task in unit.tasks:
            budget = self._blocking_budget(task)
            if budget is not None:
                name = budget.full_name
                return f"PodDisruptionBudget {name} allows no eviction of pod {task.name} now"
        if any(task.uid in self._session.memory.spared for task in unit.tasks):
            return "its eviction was refused recently"
        return ""
