"""Keeps the error of one object away from all others: it goes into quarantine.

Owned by cluster.py, which applies each change and owns what is applied to. Of an object in
quarantine only a substitute is counted: after an error halfway, all sums are computed again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.defects import Defects, DefectStage, Subject
from bindery.scheduler.cache.observers import Observe, Observers
from bindery.scheduler.cache.quarantine import Quarantine, substitutes
from bindery.scheduler.cache.tasks import TaskStore
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.problems import ObjectProblem
from bindery.scheduler.model.reasons import JobReason


class Intake:
    """Passes changes to the observers and to `take_in`, and catches their errors.

    `take_in` applies a change and returns whether a plan may change. `nodes`: their version
    changes whenever cached filters may be outdated.
    """

    def __init__(
        self,
        take_in: Callable[[Change[KubeObject]], bool],
        nodes: NodeTable,
        tasks: TaskStore,
        observers: Observers,
        defects: Defects,
        problems: deque[ObjectProblem],
    ) -> None:
        self._take_in = take_in
        self._nodes = nodes
        self._tasks = tasks
        self._observers = observers
        self._defects = defects
        self._problems = problems
        self.quarantine = Quarantine()
        self.changes = 0
        """How many watch events may have changed a plan."""

    def apply(self, change: Change[KubeObject]) -> bool:
        """Apply one watch event; return whether a plan may change."""
        # `known` is read before `tell` overwrites it: a substitute may need the last good state.
        known, writes = self._observers.known(change.object), self._tasks.charges.writes
        try:
            is_news = self._tell_all(change)
        except Exception as error:
            # Read before quarantining, which writes charges itself.
            is_half_done = self._tasks.charges.writes != writes
            self._quarantine(change, error, known)
            if is_half_done:
                self._tasks.recount()
            self.changes += 1
            return True
        if self.quarantine:
            self.quarantine.drop(change.object)
        self.changes += is_news
        return is_news

    def observe(self, observers: Iterable[tuple[Sequence[Resource[Any]], Observe]]) -> None:
        """Replace the observers of changes, and pass the existing objects to the new ones."""
        failed: list[tuple[KubeObject, Exception]] = []
        self._observers.replace(observers, lambda item, error: failed.append((item, error)))
        for item, error in failed:
            self._quarantine(Change(EventType.MODIFIED, item, item), error, None)

    def _tell_all(self, change: Change[KubeObject]) -> bool:
        concerns_filters = self._observers.tell(change)
        if concerns_filters:
            self._nodes.version += 1  # drops cached filters
        return self._take_in(change) or concerns_filters

    def _quarantine(
        self, change: Change[KubeObject], error: Exception, known: KubeObject | None
    ) -> None:
        """Leave out the object of `change` after an error, and report the error at the object."""
        item, meta = change.object, change.object.metadata
        kind = self._observers.resource(item)
        subject = Subject(kind.kind, meta.namespace, meta.name)
        text = self._defects.note(DefectStage.INTAKE, subject, error)
        why = f"the scheduler cannot process it: {text}"
        self._withdraw(item)
        if change.type is EventType.DELETED:
            self.quarantine.drop(item)
            return
        self._problems.append(
            ObjectProblem(kind.api_version, kind.kind, meta, JobReason.INTERNAL_ERROR, why)
        )
        self.quarantine.put(item, why)
        for instead in substitutes(item, known, why):
            try:
                self._tell_all(Change(EventType.ADDED, instead, None))
            except Exception as again:
                self._defects.note(DefectStage.INTAKE, subject, again)
                self._withdraw(instead)
            else:
                return

    def _withdraw(self, item: KubeObject) -> None:
        """Remove all traces of `item` after an error halfway through its intake."""
        self._observers.withdraw(item)
        self._nodes.version += 1
        try:
            self._take_in(Change(EventType.DELETED, item, item))
        except Exception:
            if isinstance(item, Pod):
                self._tasks.purge(Uid(item.metadata.uid))
            self._tasks.recount()
