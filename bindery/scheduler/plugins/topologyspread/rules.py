"""The nodes that topology spread constraints open, close and score for pods of one shape.

As kube-scheduler's plugin PodTopologySpread (Kubernetes 1.36). Pods that are being released do not
count, so the present nodes and those after all releases are the same.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.label_index import Labelled
from bindery.scheduler.model.pod_rules import Spread
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.plugins.topologyspread.counts import SpreadCounts

HIGHEST_SCORE = 100.0


class SpreadRules:
    """The constraints of one shape. The ledger keeps the counts up to date."""

    def __init__(
        self, shape: Shape, counts: Sequence[SpreadCounts], candidates: BoolColumn
    ) -> None:
        """Use `counts`, one for each constraint. `candidates`: the nodes to compare in scores."""
        self._hard = [each for each in counts if each.spread.is_hard]
        self._soft = [each for each in counts if not each.spread.is_hard]
        self._labels = shape.labels
        self.version = 0
        """Grows with each change."""
        if self._soft:
            self._candidates = np.logical_and.reduce(
                [candidates, *(each.has_domain for each in self._soft)]
            )
            self._weights = [each.weight(self._candidates) for each in self._soft]
        self._row_count = len(candidates)

    def add(self, counts: SpreadCounts, row: int, number: int) -> None:
        """Add pods on the node at `row` to one of the counts."""
        counts.add(row, number)
        self.version += 1

    def open_now(self) -> BoolColumn:
        """Return a mask of the rows on which a pod may be placed."""
        masks = [each.open_rows(is_own=self._counts_itself(each.spread)) for each in self._hard]
        if not masks:
            return np.ones(self._row_count, dtype=np.bool_)
        return np.asarray(np.logical_and.reduce(masks))

    def open_later(self) -> BoolColumn:
        """Return the same: releasing pods do not count."""
        return self.open_now()

    def is_open(self, row: int, nominated: Sequence[Labelled] = ()) -> bool:
        """Return whether the node at `row` may get one more pod beside `nominated` others."""
        return all(
            each.is_open(
                row,
                is_own=self._counts_itself(each.spread),
                nominated=sum(_counts(each.spread, pod) for pod in nominated),
            )
            for each in self._hard
        )

    def scores(self) -> NDArray[np.float64] | None:
        """Return 0 to `HIGHEST_SCORE`: the more matching pods in the domains, the less.

        0 for nodes without a label of the constraints.
        """
        if not self._soft or not self._candidates.any():
            return None
        crowd = np.zeros(self._row_count, dtype=np.float64)
        for each, weight in zip(self._soft, self._weights, strict=True):
            crowd += each.on_rows() * weight + (each.spread.max_skew - 1)
        among = crowd[self._candidates]
        most, least = among.max(), among.min()
        if most == 0:
            return np.where(self._candidates, HIGHEST_SCORE, 0.0)
        return np.where(self._candidates, HIGHEST_SCORE * (most + least - crowd) / most, 0.0)

    def failures(self) -> Iterator[NodeFailure]:
        """Yield the reasons against nodes."""
        for each in self._hard:
            key = each.spread.topology_key
            yield NodeFailure(f"have no label {key} for its spread constraint", ~each.has_domain)
            is_open = each.open_rows(is_own=self._counts_itself(each.spread))
            text = "did not match pod topology spread constraints"
            yield NodeFailure(text, ~is_open & each.has_domain, is_lasting=False)

    def _counts_itself(self, spread: Spread) -> bool:
        return spread.pods.selector.matches(self._labels)


class NominatedSpread:
    """The nodes that the constraints of one shape close by the pods nominated for them."""

    def __init__(
        self, rules: SpreadRules, row_count: int, nominated: Mapping[int, Sequence[Labelled]]
    ) -> None:
        """`nominated`: node row -> pods."""
        self._rules, self._nominated = rules, nominated
        self._row_count = row_count

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._rules.version

    def open_now(self) -> BoolColumn:
        """Return a mask of the rows that are open with their own nominated pods."""
        mask: BoolColumn = np.ones(self._row_count, dtype=np.bool_)
        for row, pods in self._nominated.items():
            mask[row] = self._rules.is_open(row, pods)
        return mask

    def open_later(self) -> BoolColumn:
        """Return the same: releasing pods do not count."""
        return self.open_now()

    def scores(self) -> NDArray[np.float64] | None:
        """Return None: nominated pods score nothing."""
        return None

    def failures(self) -> Iterator[NodeFailure]:
        """Yield the reason against the closed rows."""
        text = "did not match pod topology spread constraints with nominated pods"
        yield NodeFailure(text, ~self.open_now(), is_lasting=False)


def _counts(spread: Spread, pod: Labelled) -> bool:
    # As in kube-scheduler, a selector that selects everything counts nothing.
    return not spread.pods.selector.is_empty and spread.pods.includes(*pod, {})
