"""The session: one cycle's view of the cluster, borrowed and given back.

Opened by the engine, used by actions and plugins. It borrows the cache's columns (it never rebuilds
the world), adds what is computed once a cycle, and opens Statements. Promises (pipelined pods) live
in statements that the session holds; closing it discards them, so that between cycles the columns
say what is true.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.ledgers.base import Ledger
from bindery.scheduler.ledgers.nodes import NodeLedger
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.placement import FilterCache, Placement
from bindery.scheduler.plugins.interface import Refusal, Rows
from bindery.scheduler.plugins.registry import PluginSet
from bindery.scheduler.plugins.selectors import LabelColumns
from bindery.scheduler.statement import Statement


class Session:
    """What planning reads and writes during one cycle. `now`: seconds since the epoch."""

    def __init__(
        self, cluster: Cluster, plugins: PluginSet, filters: FilterCache, now: float
    ) -> None:
        self.state: PlanState = cluster.state
        self.plugins = plugins
        self.now = now
        self._cluster = cluster
        self._priorities: dict[Job, int] = {}
        self._queue_problems: dict[int, tuple[str, str] | None] = {}
        self.refusals: dict[Job, Refusal] = {}
        """Why jobs that were tried in this cycle wait."""
        self.order: NDArray[np.intp] = self.state.nodes.in_name_order()
        """Position -> node row, nodes sorted by name."""
        self.position: NDArray[np.intp] = np.zeros(len(self.state.nodes.nodes), dtype=np.intp)
        """Node row -> position."""
        self.position[self.order] = np.arange(len(self.order))
        self.is_releasing = bool(self.state.nodes.releasing.any())
        """Whether any room is being released: without it nothing can be pipelined."""
        self.node_ledger = NodeLedger(self.state.nodes)
        self.queue_ledger = QueueLedger(self.state.queues)
        self.queue_limit: IntColumns = self.state.queues.limit()
        """[resource, queue]: each queue's own limit."""
        self.ledgers: list[Ledger] = [self.node_ledger, self.queue_ledger]
        self.ledgers += [plugin.ledger(self) for plugin in plugins.ledgers]
        self.placement = Placement(self, filters)
        self._promises = self.statement()

    # -- statements ----------------------------------------------------------------------------

    def statement(self) -> Statement:
        """Return a new Statement over all ledgers of the session."""
        return Statement(self.state, self.ledgers)

    def hold(self, statement: Statement) -> None:
        """Take over the promises of an open `statement` until the session ends."""
        self._promises.merge([statement])

    def close(self) -> None:
        """Give the columns back: promises end here."""
        self._promises.discard()

    # -- what plugins ask ----------------------------------------------------------------------

    def priority(self, job: Job) -> int:
        """Return the priority of `job`."""
        priority = self._priorities.get(job)
        if priority is None:
            priority = self._priorities[job] = self._cluster.priority(job)
        return priority

    def priority_is_known(self, job: Job) -> bool:
        """Whether the job's PriorityClass exists; a job without one has its pods' priority."""
        known = self._cluster.priority_classes
        return job.priority_class is None or job.priority_class in known

    def queue_row(self, job: Job) -> int:
        """Return the row of the job's queue."""
        return self.state.queues.row(job.queue)

    def queue_problem(self, row: int) -> tuple[str, str] | None:
        """Return why nothing of the queue at `row` can be planned: (reason, text), or None."""
        if row not in self._queue_problems:
            self._queue_problems[row] = self.state.queues.problem(row)
        return self._queue_problems[row]

    def avoided_nodes(self, job: Job) -> list[str]:
        """Return the nodes to which binding the job failed a short while ago."""
        return self._cluster.failures.avoided(job.key, self.now)

    def postponed(self, job: Job) -> str | None:
        """Return why the job is left alone for now, if it is."""
        return self._cluster.failures.postponed(job.key, self.now)

    @cached_property
    def labels(self) -> LabelColumns:
        """Label values as columns over node rows."""
        return LabelColumns(self.state.nodes)

    @cached_property
    def cluster_total(self) -> NDArray[np.int64]:
        """What all nodes together offer [resource], at least 1 so that it can divide."""
        return np.asarray(np.maximum(self.state.nodes.allocatable.sum(axis=1), 1))

    @cached_property
    def largest_allocatable(self) -> NDArray[np.int64]:
        """The most that one node offers [resource], at least 1 so that it can divide."""
        return np.asarray(np.maximum(self.state.nodes.allocatable.max(axis=1, initial=0), 1))

    @cached_property
    def has_soft_taints(self) -> bool:
        """Whether any node has a taint of effect PreferNoSchedule."""
        return any(
            taint.effect == "PreferNoSchedule"
            for node in self.state.nodes.nodes
            if node is not None
            for taint in node.spec.taints or ()
        )

    def scores(self, shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return the sum of all plugins' scores of `rows` for pods of `shape`."""
        total = np.zeros(len(rows), dtype=np.float64)
        for plugin in self.plugins.node_scores:
            total += plugin.node_scores(self, shape, rows)
        return total

    def pods_in_order(self, job: Job) -> list[Task]:
        """Return the pending pods of `job` in the order in which they are placed."""
        plugins = self.plugins.pod_order
        return sorted(
            job.pending.values(),
            key=lambda task: (*(p.pod_key(self, task) for p in plugins), task.order),
        )
