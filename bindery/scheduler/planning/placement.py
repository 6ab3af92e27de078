"""Finding nodes for pods; equal pods share their vectors.

Each pod shape has one mask and one score vector over all nodes. Placing a pod changes one node, so
only its entries are computed again. A gang of N equal pods costs little more than one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.domains import EVERYWHERE, Domain
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.nominations import Nominated
from bindery.scheduler.model.row_rules import Combined, RowRules
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import NodeFailure, Rows
from bindery.scheduler.planning.filter_cache import FilterCache
from bindery.scheduler.planning.shape_vectors import Place, ShapeVectors
from bindery.scheduler.planning.view import PlanningView
from bindery.scheduler.plugins.interface import nodes as points

_MOST_ENTRIES, _LEAST_VECTORS = 5_000_000, 100
"""The vectors of all shapes have about so many entries of 10 bytes: each pod can have its own."""


class Placement:
    """Finds places for pods of any shape during one session."""

    def __init__(self, session: PlanningView, filters: FilterCache) -> None:
        self._session, self._plugins = session, session.plugins
        self.check_time = session.timer.check
        self._filters = filters
        self._most = max(_LEAST_VECTORS, _MOST_ENTRIES // max(len(session.order), 1))
        self._vectors: dict[tuple[Shape, Nominated | None], ShapeVectors] = {}
        """The last used at the end, at most `_most`."""
        self._beside: dict[tuple[Shape, Nominated | None], ShapeVectors] = {}
        """The same without the nodes of `_closed`."""
        self._closed: BoolColumn | None = None
        self._rules: dict[tuple[Shape, Nominated | None], Combined | None] = {}
        self._rooms: dict[Shape, list[points.NodeRoom]] = {}
        self._filtered: dict[Shape, bool] = {}
        """The answers of `is_filtered`, which is asked many times for each pod."""

    def finder(self, job: Job, domain: Domain = EVERYWHERE) -> "JobFinder":
        """Return a finder for the pods of `job` within `domain`."""
        against = [
            failure
            for plugin in self._plugins.of(points.JobNodeFilter)
            for failure in plugin.job_node_failures(self._session, job)
        ]
        return JobFinder(self, tuple(against), domain, self._session.nominated(job))

    def shared(self, shape: Shape, nominated: Nominated | None) -> ShapeVectors:
        """Return the vectors of `shape` that all jobs without own node filters share."""
        return self._kept(self._vectors, shape.plain, nominated, None)

    def beside(self, shape: Shape, nominated: Nominated | None, closed: BoolColumn) -> ShapeVectors:
        """Return the vectors of `shape` beside one mask of `closed` rows; else as `shared`.

        Only the vectors of the last mask are kept: it changes with the plan.
        """
        if closed is not self._closed:
            self._beside, self._closed = {}, closed
        return self._kept(self._beside, shape.plain, nominated, closed)

    def _kept(
        self,
        known: dict[tuple[Shape, Nominated | None], ShapeVectors],
        shape: Shape,
        nominated: Nominated | None,
        closed: BoolColumn | None,
    ) -> ShapeVectors:
        """Return the vectors from `known`, or new ones, which replace those not used longest."""
        key = shape, nominated
        vectors = known.pop(key, None)
        if vectors is None:
            vectors = self.own(shape, None if closed is None else ~closed, nominated=nominated)
            if len(known) >= self._most:
                del known[next(iter(known))]
        known[key] = vectors
        return vectors

    def close(self) -> None:
        """Drop all vectors: they refer to the session, and the session to them."""
        self._vectors, self._beside, self._rules = {}, {}, {}

    def rules(self, shape: Shape, nominated: Nominated | None) -> Combined | None:
        """Return the rules about other pods for `shape`; None if there are none."""
        if shape.unruled is None and nominated is None:
            return None
        key = shape, nominated
        if key not in self._rules:
            answers: list[tuple[RowRules | None, float]] = []
            if shape.unruled is not None:
                answers += [
                    (plugin.placement_rules(self._session, shape), self._plugins.weight(plugin))
                    for plugin in self._plugins.of(points.PlacementRules)
                ]
            if nominated is not None:
                answers += [
                    (plugin.nominated_rules(self._session, shape, nominated.pods), 0.0)
                    for plugin in self._plugins.of(points.NominatedRules)
                ]
            rules = [(each, weight) for each, weight in answers if each is not None]
            self._rules[key] = Combined(rules, self._session.order) if rules else None
        return self._rules[key]

    def is_closed(self, task: Task, row: int) -> bool:
        """Return whether rules about other pods close the node at `row`, after all releases."""
        nominated = self._session.nominated(self._session.state.jobs[task.job])
        rules = self.rules(task.shape, nominated)
        return rules is not None and not rules.later[self._session.position[row]]

    def rooms(self, shape: Shape) -> Sequence[points.NodeRoom]:
        """Return the plugins whose own ledgers have room for pods of `shape`."""
        rooms = self._rooms.get(shape)
        if rooms is None:
            of_all = self._plugins.of(points.NodeRoom)
            rooms = self._rooms[shape] = [each for each in of_all if each.keeps_room_for(shape)]
        return rooms

    def is_filtered(self, shape: Shape) -> bool:
        """Return whether single pods of `shape` may have own node filters."""
        known = self._filtered.get(shape)
        if known is None:
            filters = self._plugins.of(points.TaskNodeFilter)
            known = self._filtered[shape] = any(p.filters_tasks_of(shape) for p in filters)
        return known

    def task_failures(self, task: Task) -> tuple[NodeFailure, ...]:
        """Return the failures of nodes for `task` alone, with the plan so far."""
        return tuple(
            failure
            for plugin in self._plugins.of(points.TaskNodeFilter)
            if plugin.filters_tasks_of(task.shape)
            for failure in plugin.task_node_failures(self._session, task)
        )

    def passing(self, shape: Shape) -> BoolColumn:
        """Return the rows that pass all static filters for `shape`. Do not write to the mask."""
        return self._filters.passing(self._session, shape)

    def own(
        self,
        shape: Shape,
        allowed: BoolColumn | None,
        bonus: NDArray[np.float64] | None = None,
        nominated: Nominated | None = None,
    ) -> ShapeVectors:
        """Return new vectors of `shape`, restricted to `allowed` (mask over rows) if given."""
        passing = self._filters.passing(self._session, shape)
        mask = passing if allowed is None else passing & allowed
        return ShapeVectors(self._session, shape, mask, self.rooms(shape), bonus, nominated)

    def positions(self, rows: Rows) -> NDArray[np.intp]:
        """Return the positions of `rows` in the order of node names."""
        return self._session.position[rows]

    def mask(self, rows: Iterable[int]) -> BoolColumn:
        """Return `rows` as a mask over node rows."""
        mask = np.zeros(len(self._session.state.nodes.nodes), dtype=np.bool_)
        mask[list(rows)] = True
        return mask

    def failures(self, shape: Shape) -> Sequence[NodeFailure]:
        """Return the failures of nodes for `shape` from static filters."""
        return self._filters.failures(self._session, shape)


class JobFinder:
    """Finds places for one job, with the shared vectors unless the job has own node filters."""

    def __init__(
        self,
        placement: Placement,
        against: tuple[NodeFailure, ...],
        domain: Domain,
        nominated: Nominated | None,
    ) -> None:
        self._placement = placement
        self.nominated = nominated
        """The nominated pods of other schedulers that count for the job."""
        self._bonus = domain.bonus
        self._of_shapes = domain.of_shapes
        self._outside = f"outside {domain.name}" if domain.name else "outside its domain"
        nodes = domain.nodes
        is_shared = nodes is None and len(against) == 1 and against[0].is_shared
        self._closed: BoolColumn | None = against[0].nodes if is_shared else None
        """The only restriction of its nodes, if other jobs have the same."""
        if nodes is not None:
            against = (*against, NodeFailure(self._outside, ~nodes))
        self._against = against
        self.closed_by = {
            job: rows for failure in against for job, rows in failure.closed_by.items()
        }
        """Job -> the rows that are closed as long as it has pods that stay, as a mask."""
        masks = [~failure.nodes for failure in against]
        self._allowed: BoolColumn | None = np.logical_and.reduce(masks) if masks else None
        self._own: dict[Shape, ShapeVectors] = {}
        self._last: tuple[Task, ShapeVectors] | None = None
        """The vectors of the last pod with own filters, valid until another pod is placed."""
        self._refused: defaultdict[Shape | Uid, dict[int, str]] = defaultdict(dict)
        """Shape, or pod with own filters -> row -> why a ledger refused it there."""

    @property
    def is_restricted(self) -> bool:
        """Whether the nodes for the job differ from the nodes for equal pods of other jobs."""
        is_limited = self._allowed is not None or bool(self._of_shapes)
        return is_limited or self._bonus is not None or bool(self._refused)

    def is_tied(self, shape: Shape) -> bool:
        """Return whether the domain has a narrower part for pods of `shape`."""
        return shape in self._of_shapes

    def speaks_for_others(self, task: Task) -> bool:
        """Return whether a result for `task` holds until the session ends, for pods of any job.

        That is for all pods of its shape. With rules about other pods, a later pod may open nodes.
        """
        placement, shape = self._placement, task.shape
        # Jobs of other priorities may count fewer nominated pods.
        if self.is_restricted or placement.is_filtered(shape) or self.nominated is not None:
            return False
        return self._rules(shape) is None

    def best(self, task: Task) -> Place | None:
        """Return the best place for `task`; None if it fits nowhere."""
        rules = self._rules(task.shape)
        return self._vectors(task).best(rules, may_wait=not task.spreads_devices)

    def best_or_kept(self, task: Task, kept_row: int | None) -> Place | None:
        """Return the promised place of `task` if it is as good as the best place; else the best.

        Free room is better than room that is being released. `kept_row`: the promised node.
        """
        best = self.best(task)
        if kept_row is None or best is None or best.row == kept_row:
            return best
        kept = self._vectors(task).at(kept_row, self._rules(task.shape))
        return kept if kept is not None and kept.fits_now >= best.fits_now else best

    def fitting_later(self, task: Task) -> Rows:
        """Return the rows where `task` fits after all pending releases."""
        rows, rules = self._vectors(task).fitting(later=True), self._rules(task.shape)
        return rows if rules is None else rows[rules.later[self._placement.positions(rows)]]

    def allowed(self, shape: Shape) -> BoolColumn:
        """Return the rows that a pod of `shape` may use, apart from room. Do not write to it."""
        passing, allowed = self._placement.passing(shape), self._limits(shape)
        return passing if allowed is None else passing & allowed

    def _limits(self, shape: Shape) -> BoolColumn | None:
        """Return the rows of the job's domain and own filters; None for all."""
        tied = self._of_shapes.get(shape)
        if tied is None or self._allowed is None:
            return self._allowed if tied is None else tied
        return self._allowed & tied

    def allowed_for(self, task: Task, *, emptied: bool = False) -> BoolColumn:
        """Return a new mask of rows for `task` apart from room; `emptied`: after evictions."""
        allowed = self._placement.passing(task.shape).copy()
        rules = self._rules(task.shape)
        of_rules = rules.failures() if rules is not None else ()
        tied = self._of_shapes.get(task.shape)
        if tied is not None:
            allowed &= tied
        for failure in (*self._against, *self._placement.task_failures(task), *of_rules):
            if failure.is_lasting or not emptied:
                allowed &= ~failure.nodes
        return allowed

    def exclude(self, task: Task, row: int, reason: str) -> None:
        """Exclude the node at `row` for `task`, and equal pods without own filters."""
        filtered = self._placement.is_filtered(task.shape)
        # Never the shared vectors: other jobs may still use the node.
        vectors = self._vectors(task) if filtered else self._own_vectors(task.shape)
        vectors.exclude(row)
        self._refused[task.uid if filtered else task.shape][row] = reason

    def readmit(self, task: Task, row: int) -> None:
        """Undo `exclude`."""
        filtered = self._placement.is_filtered(task.shape)
        (self._vectors(task) if filtered else self._own_vectors(task.shape)).readmit(row)
        self._refused[task.uid if filtered else task.shape].pop(row, None)

    def against(self, task: Task) -> Iterator[NodeFailure]:
        """Yield the failures of nodes for `task` beyond the failures for its shape."""
        yield from self._against
        tied = self._of_shapes.get(task.shape)
        if tied is not None:
            yield NodeFailure(self._outside, ~tied)
        yield from self._placement.task_failures(task)
        rules = self._rules(task.shape)
        if rules is not None:
            yield from rules.failures()
        for key in (task.shape, task.uid):
            rows = self._refused.get(key, {})
            for reason in sorted(set(rows.values())):
                mask = self._placement.mask(row for row in rows if rows[row] == reason)
                yield NodeFailure(reason, mask)

    def _rules(self, shape: Shape) -> Combined | None:
        return self._placement.rules(shape, self.nominated)

    def _vectors(self, task: Task) -> ShapeVectors:
        shape = task.shape
        self._placement.check_time()
        if self._placement.is_filtered(shape):
            return self._task_vectors(task)
        if self._bonus is None and shape not in self._own and not self.is_tied(shape):
            if self._allowed is None:
                return self._placement.shared(shape, self.nominated)
            if self._closed is not None:
                return self._placement.beside(shape, self.nominated, self._closed)
        return self._own_vectors(shape)

    def _own_vectors(self, shape: Shape) -> ShapeVectors:
        vectors = self._own.get(shape)
        if vectors is None:
            vectors = self._own[shape] = self._placement.own(
                shape, self._limits(shape), self._bonus, self.nominated
            )
        return vectors

    def _task_vectors(self, task: Task) -> ShapeVectors:
        if self._last is None or self._last[0] is not task:
            allowed = self.allowed(task.shape).copy()
            for failure in self._placement.task_failures(task):
                allowed &= ~failure.nodes
            vectors = self._placement.own(task.shape, allowed, self._bonus, self.nominated)
            for row in self._refused.get(task.uid, ()):
                vectors.exclude(row)
            self._last = (task, vectors)
        return self._last[1]
