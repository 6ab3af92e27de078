"""The rule of an action: the claims, the victims and the plans that it refuses."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


class UnitRefusal(NamedTuple):
    """A reason why a rule spares a unit.

    The solver counts refusals by the thousand and reads no text, so the text is a function.
    """

    reason: JobReason
    text: Callable[[], str]
    """Returns the message for users, about the plan at the time of the call."""


class Rule(Protocol):
    """The rule of one action. Refusals are generators: the first one decides.

    What a rule does not define spares only the job that waits, and pods that must move.
    """

    name: str
    """The action's name, for events and metrics."""
    moves_all: bool = False
    """Whether every victim must find another place."""
    most_jobs: int | None = None
    """Maximum number of jobs whose pods may be evicted; None means no limit."""
    has_victims: bool = True
    """Whether there are any; else a claim can only use room that is idle or being released."""

    def against_claim(self, session: Session, claim: RoomClaim) -> Iterator[Refusal]:
        """Yield why no room may be made for `claim` at all."""

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return which units of `table` may be evicted for `claim`, before any of them is.

        The vectors of `against_unit`: a unit is left out only if `against_unit` yields a refusal.
        """

    def movable(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return which units may be evicted for `claim` if they find other places."""
        return self.eligible(session, claim, table)

    def against_unit(
        self,
        session: Session,  # noqa: ARG002
        claim: RoomClaim,
        unit: EvictionUnit,
    ) -> Iterator[UnitRefusal]:
        """Yield why `unit` may not be evicted next, after the evictions of the plan so far."""
        if unit.job is claim.job:
            yield UnitRefusal(JobReason.NOT_ALLOWED, lambda: "it belongs to the job that waits")

    def against_plan(
        self,
        session: Session,  # noqa: ARG002
        claim: RoomClaim,  # noqa: ARG002
        killed: Sequence[EvictionUnit],
    ) -> Iterator[Refusal]:
        """Yield why the whole plan is not acceptable. `killed`: units without another place."""
        if self.moves_all and killed:
            yield Refusal(JobReason.NOT_ALLOWED, "not every pod that moves has another place")


class NoVictims(Rule):
    """The rule that allows no evictions."""

    name = "no victims"
    has_victims = False

    def against_claim(self, session: Session, claim: RoomClaim) -> Iterator[Refusal]:  # noqa: ARG002
        """Yield nothing."""
        return iter(())

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:  # noqa: ARG002
        """Return an empty mask."""
        return np.zeros(len(table.units), dtype=np.bool_)


class SparingRule(Rule, Protocol):
    """A stricter rule, made for one search: it refuses victims that another rule allows."""

    @property
    def has_spared(self) -> bool:
        """Whether it has refused such a victim; if not, the other rule finds no more."""


def is_empty(refusals: Iterator[object]) -> bool:
    """Return whether there are no refusals; at most one is computed."""
    return next(refusals, None) is None
