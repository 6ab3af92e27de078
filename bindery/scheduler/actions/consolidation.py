"""consolidation: running jobs move closer together, so that a waiting job fits."""

from collections.abc import Iterator, Sequence

import numpy as np

from bindery.api.configuration import SchedulerConfiguration
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection, rules
from bindery.scheduler.solver.rules import RoomClaim, UnitRefusal
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


def most_moved(configuration: SchedulerConfiguration) -> int:
    """Return how many jobs consolidation may move per waiting job; 0 if pods are spread."""
    for plugin in configuration.plugins:
        if plugin.name == "nodeplacement" and "spread" in (
            plugin.arguments.get("gpu"),
            plugin.arguments.get("cpu"),
        ):
            return 0
    return configuration.consolidation_max_moved


class ConsolidationRule:
    """Preemptible jobs move for a preemptible job that waits. `most_jobs`: see `Rule`."""

    name = "consolidation"
    moves_all = True

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = most_jobs

    def against_claim(self, session: Session, claim: RoomClaim) -> Iterator[Refusal]:
        """Refuse a job that is not preemptible itself, or must wait longer first."""
        if not self.most_jobs:
            yield Refusal(JobReason.NOTHING_MOVES, "consolidation is off")
        elif not all(task.is_preemptible for task in claim.tasks):
            yield Refusal(
                JobReason.NON_PREEMPTIBLE, "others are not moved for a non-preemptible job"
            )
        else:
            yield from protection.against_claim(session, claim)

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:  # noqa: ARG002
        """Return all units: a move costs only the time of a restart."""
        return np.ones(len(table.units), dtype=np.bool_)

    def movable(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return all units: each of them must find another place."""
        return self.eligible(session, claim, table)

    def against_unit(
        self,
        session: Session,  # noqa: ARG002
        claim: RoomClaim,
        unit: EvictionUnit,
    ) -> Iterator[UnitRefusal]:
        """Refuse units of the job itself."""
        return rules.own_units(claim, unit)

    def against_plan(
        self,
        session: Session,  # noqa: ARG002
        claim: RoomClaim,  # noqa: ARG002
        killed: Sequence[EvictionUnit],
    ) -> Iterator[Refusal]:
        """Refuse plans that kill: every unit must have another place."""
        return rules.kills(killed)
