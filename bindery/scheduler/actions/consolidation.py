"""consolidation: running jobs move together, so that one that waits fits."""

from collections.abc import Sequence

import numpy as np

from bindery.api.configuration import SchedulerConfiguration
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection
from bindery.scheduler.solver.rules import Claim
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
    """Running preemptible jobs move together, so that a preemptible one that waits fits."""

    name = "consolidation"
    moves_all = True

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = most_jobs

    def refuse(self, session: Session, claim: Claim) -> Refusal | None:
        """Refuse a job that is not preemptible itself, or has to wait longer first."""
        if not self.most_jobs:
            return Refusal(JobReason.NOTHING_MOVES, "consolidation is off")
        if not all(task.is_preemptible for task in claim.tasks):
            return Refusal(
                JobReason.NON_PREEMPTIBLE, "others are not moved for a non-preemptible job"
            )
        return protection.delay(session, claim)

    def eligible(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:  # noqa: ARG002
        """Return all units: nobody loses anything but the time of moving."""
        return np.ones(len(table.units), dtype=np.bool_)

    def movable(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return all units: every one of them must find another place."""
        return self.eligible(session, claim, table)

    def allows(self, session: Session, claim: Claim, unit: EvictionUnit) -> bool:  # noqa: ARG002
        """Every unit but the claimant's own may move."""
        return unit.job is not claim.job

    def accepts(self, session: Session, claim: Claim, gone: Sequence[EvictionUnit]) -> bool:  # noqa: ARG002
        """Accept only plans in which every victim has another place."""
        return not gone
