"""The rule of an action: the claims, the victims and the plans that it refuses."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


@dataclass(frozen=True)
class RoomClaim:
    """A gang, or one extra pod, that needs room. Made before anything is evicted.

    The search places `tasks` in their order. The sum of their requests is cached, because it is
    compared with every victim.
    """

    job: Job
    tasks: tuple[Task, ...]
    beside_pods: NDArray[np.int64] | None = field(default=None, compare=False)
    """What its job will hold beside its pods, in the domains that are tried: [resource].

    None: no exclusive domain is tried, or none is chosen yet.
    """

    @cached_property
    def request(self) -> Mapping[int, int]:
        """The sum of the pods' requests: position on the resource axis -> units."""
        return total(task.shape.request for task in self.tasks)

    def resources(self) -> list[int]:
        """Return the positions of the resources that it wants."""
        beside = () if self.beside_pods is None else np.flatnonzero(self.beside_pods).tolist()
        return sorted({*self.request, *beside})

    def waiting_request(self) -> Mapping[int, int]:
        """Return the sum of the requests of pods without a place in the plan."""
        pending = self.job.pending
        placed = bisect_left(self.tasks, True, key=lambda task: task.uid in pending)
        return self._requests_from[placed]

    @cached_property
    def _requests_from(self) -> Sequence[Mapping[int, int]]:
        """Position in `tasks` -> sum of the requests of the pods from there on."""
        sums: list[dict[int, int]] = [{}]
        for task in reversed(self.tasks):
            so_far, request = dict(sums[-1]), task.shape.request.in_queues
            for index, amount in zip(request.indices, request.amounts, strict=True):
                so_far[index] = so_far.get(index, 0) + amount
            sums.append(so_far)
        return sums[::-1]


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


class SparingRule(Rule, Protocol):
    """A stricter rule, made for one search: it refuses victims that another rule allows."""

    @property
    def has_spared(self) -> bool:
        """Whether it has refused such a victim; if not, the other rule finds no more."""


def is_empty(refusals: Iterator[object]) -> bool:
    """Return whether there are no refusals; at most one is computed."""
    return next(refusals, None) is None
