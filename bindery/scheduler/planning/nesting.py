"""Placing the pods of one job in nested domains, and choosing the best of several plans.

A group with a topology constraint is placed in one domain, and each group below it in a domain
inside that one. Each domain that is tried is a part of the same Statement: a plan is extracted,
rolled back, and the best one is replayed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bindery.scheduler.ledgers.base import OperationKind
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.domains import EVERYWHERE, NO_ROWS, Domain, DomainAsk, rows_beside
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Plan, Statement

_MOST_TRIED = 256
"""How many domains are tried for one group before it fails in this cycle."""
_MOST_PLANS = 8
"""How many plans are compared."""

Cost = tuple[bool, int]
"""Whether pods wait for releases, and the sum of the ranks of the domains below."""
_IDEAL: Cost = (False, 0)


@dataclass(frozen=True, slots=True)
class _Found:
    cost: Cost
    rank: int
    plan: Plan


class Nest:
    """The domain that the pods of `job` are placed in now, within `statement`."""

    def __init__(
        self, session: Session, job: Job, statement: Statement, domain: Domain = EVERYWHERE
    ) -> None:
        self._session = session
        self._job = job
        self._statement = statement
        self._ranks = 0
        """Sum of the ranks of the domains chosen so far."""
        self._without_domain: DomainAsk | None = None
        self.domain = domain
        """The domain that is chosen so far."""
        self.finder: JobFinder = session.placement.finder(job, domain)

    def inside(
        self,
        constraint: Constraint | None,
        tasks: Sequence[Task],
        is_member: Callable[[Task], bool],
        attempt: Callable[[], bool],
        *,
        is_new: bool = False,
    ) -> bool:
        """Run `attempt` in the best domain for `tasks`; return whether it succeeded in one.

        `is_member`: whether a pod belongs to the constrained group. `is_new`: whether no pod of it
        has a place yet. A failed attempt may leave operations behind; they are rolled back.
        """
        if constraint is None or not constraint.limits or not tasks:
            return attempt()
        outer, finder, ranks = self.domain, self.finder, self._ranks
        beside = NO_ROWS if is_new else rows_beside(self._job, tasks, is_member)
        ask = DomainAsk(self._job, constraint, tasks, beside, is_member, outer.nodes)
        found = self._best(ask, attempt)
        self.domain, self.finder = outer, finder
        self._ranks = ranks + (found.rank + found.cost[1] if found is not None else 0)
        return found is not None

    def _best(self, ask: DomainAsk, attempt: Callable[[], bool]) -> _Found | None:
        """Leave the best plan in the Statement and return it; None if no domain has one."""
        statement, best = self._statement, None
        start, tried, plans = statement.savepoint(), 0, 0
        for domain in self._session.calls.group_domains(ask):
            is_worse = best is not None and domain.rank > best.rank
            if is_worse or plans == _MOST_PLANS or tried == _MOST_TRIED:
                break
            tried += 1
            self._enter(domain)
            if attempt():
                plans += 1
                waits = any(o.kind is OperationKind.PIPELINE for o in statement.operations[start:])
                cost = (waits, self._ranks)
                if best is None or cost < best.cost:
                    best = _Found(cost, domain.rank, statement.extract(start))
                if cost == _IDEAL:  # nothing can be better
                    return best
            statement.rollback(start)
        if best is not None:
            statement.replay(best.plan)
        elif not tried:
            self._without_domain = ask
        return best

    def take_ask(self) -> DomainAsk | None:
        """Return the last ask for which no domain could be tried, and forget it; None for none."""
        ask, self._without_domain = self._without_domain, None
        return ask

    def give_back(self, ask: DomainAsk | None) -> None:
        """Let `take_ask` return `ask` again."""
        self._without_domain = ask

    def _enter(self, domain: Domain) -> None:
        if self.domain.of_shapes:
            domain = replace(domain, of_shapes=self.domain.of_shapes)
        self.domain, self._ranks = domain, 0
        self.finder = self._session.placement.finder(self._job, domain)
