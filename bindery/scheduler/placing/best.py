"""The best plan of several: one for each choice of domains, all in the same Statement.

A plan is extracted and rolled back, and the best one is replayed. Where pods find room, and which
plan is better, is the answer of a source of room.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bindery.scheduler.placing.domains import PodDomains
from bindery.scheduler.planning.statement import Plan, Statement


class DomainPlan(Protocol):
    """A plan in the Statement, as its source describes it."""

    @property
    def is_ideal(self) -> bool:
        """Whether no other choice of domains can have a better plan."""


P = TypeVar("P", bound=DomainPlan)


class Source(Protocol[P]):
    """Where the pods of one claim find room: idle room, or what victims free."""

    def plan(self, domains: PodDomains) -> P | None:
        """Write a plan for the claim in `domains` into the Statement; None if there is none.

        What it leaves in the Statement without a plan is rolled back.
        """

    def is_better(self, plan: P, than: P) -> bool:
        """Return whether `plan` is better."""

    def is_enough(self, best: P, plans: int, coming: PodDomains) -> bool:
        """Return whether `best`, of so many `plans`, is taken without trying `coming`."""


@dataclass(frozen=True, slots=True)
class _Best(Generic[P]):
    planned: P
    plan: Plan


def best_plan(statement: Statement, choices: Iterable[PodDomains], source: Source[P]) -> P | None:
    """Leave the best plan of `source` in `statement` and return it; None if there is none."""
    start, plans = statement.savepoint(), 0
    best: _Best[P] | None = None
    for domains in choices:
        if best is not None and source.is_enough(best.planned, plans, domains):
            break
        found = source.plan(domains)
        if found is not None:
            plans += 1
            if found.is_ideal:
                return found
            if best is None or source.is_better(found, best.planned):
                best = _Best(found, statement.extract(start))
        statement.rollback(start)
    if best is None:
        return None
    statement.replay(best.plan)
    return best.planned
