"""consolidation: running jobs move closer together, so that a waiting job fits."""

from collections.abc import Iterator

import numpy as np

from bindery.api.configuration import SchedulerConfiguration
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection
from bindery.scheduler.solver.rules import Rule
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


class ConsolidationRule(Rule):
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
