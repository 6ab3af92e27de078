"""The results of static filters, kept over sessions. Used by `placement`."""

from dataclasses import replace
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.planning.view import PlanningView
from bindery.scheduler.plugins.interface.nodes import NodeFilter


class FilterCache:
    """Masks of static filters by shape, kept over sessions until a node changes."""

    def __init__(self) -> None:
        self._version = -1
        # Weak: the masks of a shape go with its last pod.
        self._failures: WeakKeyDictionary[Shape, tuple[NodeFailure, ...]] = WeakKeyDictionary()
        self._passing: WeakKeyDictionary[Shape, BoolColumn] = WeakKeyDictionary()
        self._masks: WeakValueDictionary[int, BoolColumn] = WeakValueDictionary()
        """Hash of the values -> the mask: shapes with equal masks share one."""

    def failures(self, session: PlanningView, shape: Shape) -> tuple[NodeFailure, ...]:
        """Return the failures of nodes for `shape` from the filter plugins."""
        if session.state.nodes.version != self._version:
            self._failures.clear()
            self._passing.clear()
            self._version = session.state.nodes.version
        shape = shape.plain  # rules about other pods are no static filters
        found = self._failures.get(shape)
        if found is None:
            found = self._failures[shape] = tuple(
                replace(failure, nodes=self._shared(failure.nodes))
                for plugin in session.plugins.of(NodeFilter)
                for failure in plugin.node_failures(session, shape)
                if failure.nodes.any()
            )
        return found

    def passing(self, session: PlanningView, shape: Shape) -> BoolColumn:
        """Return the rows that pass all static filters for `shape`, as a shared mask."""
        shape = shape.plain
        failures = self.failures(session, shape)
        mask = self._passing.get(shape)
        if mask is None:
            mask = session.state.nodes.exists.copy()
            for failure in failures:
                mask &= ~failure.nodes
            mask = self._passing[shape] = self._shared(mask)
        return mask

    def _shared(self, mask: BoolColumn) -> BoolColumn:
        """Return a mask that is equal to `mask`; do not write to it."""
        known = self._masks.setdefault(hash(mask.tobytes()), mask)
        return known if np.array_equal(known, mask) else mask
