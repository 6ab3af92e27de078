"""The check whether victims would be placed again after their eviction. Only these are moved.

A pod returns only if a controller creates a replacement, and starts only if no plugin refuses its
job. The check runs before the eviction, while the gang is whole.
"""

from collections.abc import Sequence

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, JobKey
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.units import EvictionUnit

_UNKNOWN = -1


class Returning:
    """The answers for `units`, cached for the session."""

    def __init__(self, session: Session, units: Sequence[EvictionUnit]) -> None:
        self._session = session
        self._units = units
        self._answers = np.full(len(units), _UNKNOWN, dtype=np.int8)
        """EvictionUnit -> 1 if all its pods return, 0 if not."""
        self._of_jobs: dict[JobKey, bool] = {}

    def of(self, index: int) -> bool:
        """Return whether all pods of the unit at `index` would be placed again."""
        if self._answers[index] == _UNKNOWN:
            self._answers[index] = self._ask(self._units[index])
        return bool(self._answers[index])

    def among(self, mask: BoolColumn) -> BoolColumn:
        """Return the units of `mask` whose pods would all be placed again."""
        for index in np.flatnonzero(mask & (self._answers == _UNKNOWN)).tolist():
            self._answers[index] = self._ask(self._units[index])
        return np.asarray(mask & (self._answers == 1))

    def _ask(self, unit: "EvictionUnit") -> bool:
        job = unit.job
        if job.key not in self._of_jobs:
            self._of_jobs[job.key] = _may_be_planned(self._session, job)
        return self._of_jobs[job.key] and all(
            task.is_recreated and self._session.calls.task_refusal(task) is None
            for task in unit.tasks
        )


def _may_be_planned(session: Session, job: Job) -> bool:
    """Return whether plugins would let `job`, in its present state, be planned and bound."""
    return session.calls.invalid(job) is None and session.calls.is_ready(job)
