"""The exclusive domains that waiting gangs want, as far as they are known before planning.

Shares count them: a gang wants all of a domain, whatever its pods request.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.domains import AskedDomain
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.parts import of_unit
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.trees import NOWHERE
from bindery.scheduler.plugins.topology.book import TreeBook
from bindery.scheduler.plugins.topology.domain_limits import Amounts
from bindery.scheduler.plugins.topology.levels import TopologyProblem, allowed, padded
from bindery.scheduler.plugins.view import SessionView


class AskedDomains:
    """The smallest domain for each part of a gang that has none. Sums by level are kept."""

    def __init__(self, session: SessionView, book: TreeBook) -> None:
        self._session = session
        self._book = book
        self._sums: dict[Constraint, tuple[NDArray[np.intp], Amounts]] = {}
        """Constraint -> node row -> domain, and what each domain offers: [resource, domain]."""

    def of(self, job: Job) -> Iterator[AskedDomain]:
        """Yield the domains for the waiting pods of `job` that are in none yet."""
        first = {task.uid for task in self._session.next_pods(job)}
        covered: set[Uid] = set()
        for constraint, members in _parts(job):
            tasks = [task for task in members if task.uid not in covered]
            covered.update(task.uid for task in tasks)
            wanted = [task for task in tasks if task.uid in first]
            domain, offered = self.of_level(constraint)
            fits = np.ones(offered.shape[1], dtype=np.bool_)
            for index, amount in total(task.shape.request for task in wanted).items():
                fits &= offered[index] >= amount
            if wanted and fits.any():
                found = np.flatnonzero(fits)
                size = offered[[self._session.state.axis.index("cpu"), self._gpu]][:, found]
                yield domain == found[np.lexsort(size)[0]], tasks

    @property
    def _gpu(self) -> int:
        return self._session.state.axis.index(GPU_RESOURCE)

    def of_level(self, constraint: Constraint) -> tuple[NDArray[np.intp], Amounts]:
        """Return node row -> domain, and what each domain offers to queues: [resource, domain]."""
        if constraint not in self._sums:
            offered = self._session.offered
            domain = np.full(offered.shape[1], NOWHERE, dtype=np.intp)
            try:
                levels = allowed(self._book, self._session.state.nodes, constraint)
                domain = padded(levels.tree, levels.allowed[-1], offered.shape[1])
            except TopologyProblem:  # `invalid` refuses the job
                pass
            sums = np.zeros((len(offered), int(domain.max(initial=NOWHERE)) + 1), dtype=np.int64)
            inside = domain != NOWHERE
            np.add.at(sums.T, domain[inside], offered[:, inside].T)
            self._sums[constraint] = domain, sums
        return self._sums[constraint]


def _parts(job: Job) -> Iterator[tuple[Constraint, list[Task]]]:
    """Yield the exclusive constraints of `job` with their waiting pods, the widest groups first."""
    waiting = list(job.pending.values())
    for name, constraint in job.constraints():
        if constraint.is_exclusive:
            leaves = job.leaves_of(name)
            yield constraint, [t for t in waiting if leaves is None or t.sub_group in leaves]
    for unit in dict.fromkeys(task.exclusive_unit for task in waiting):
        if unit is not None:
            yield of_unit(unit), [task for task in waiting if task.exclusive_unit == unit]
