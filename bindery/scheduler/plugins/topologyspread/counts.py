"""The pods of one topology spread constraint, counted by domain."""

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import HOSTNAME_LABEL
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.label_domains import NO_DOMAIN, Domains
from bindery.scheduler.model.pod_rules import Spread


class SpreadCounts:
    """The matching pods of a constraint, on the nodes that count for it."""

    def __init__(self, spread: Spread, domains: Domains, counted: BoolColumn) -> None:
        """Count nothing yet. `counted`: mask of the node rows whose pods and domains count."""
        self.spread = spread
        self._of_row = domains.of_row
        self._counted = counted & (self._of_row != NO_DOMAIN)
        # The last entry stands for nodes without a domain; no pod is ever counted there.
        self._pods: NDArray[np.int64] = np.zeros(domains.count + 1, dtype=np.int64)
        self._domains = np.unique(self._of_row[self._counted])

    @property
    def has_domain(self) -> BoolColumn:
        """Node row -> whether the node has the label."""
        return np.asarray(self._of_row != NO_DOMAIN)

    def add(self, row: int, number: int) -> None:
        """Add pods on the node at `row`, if it counts."""
        if self._counted[row]:
            self._pods[self._of_row[row]] += number

    def on_rows(self) -> NDArray[np.int64]:
        """Return the number of pods in the domain of each node row."""
        return np.asarray(self._pods[self._of_row])

    def allowed(self, *, is_own: bool) -> BoolColumn:
        """Return a mask of the domains that may get one more pod; the last entry is False.

        `is_own`: whether the pod itself counts.
        """
        allowed = self._pods + int(is_own) - self._least() <= self.spread.max_skew
        allowed[NO_DOMAIN] = False
        return np.asarray(allowed)

    def open_rows(self, *, is_own: bool) -> BoolColumn:
        """Return a mask of the node rows whose domain may get one more pod."""
        return np.asarray(self.allowed(is_own=is_own)[self._of_row])

    def is_open(self, row: int, *, is_own: bool, nominated: int = 0) -> bool:
        """Return whether the node at `row` may get one more pod beside `nominated` others."""
        domain = self._of_row[row]
        if domain == NO_DOMAIN:
            return False
        self.add(row, nominated)
        skew = self._pods[domain] + int(is_own) - self._least()
        self.add(row, -nominated)
        return bool(skew <= self.spread.max_skew)

    def weight(self, candidates: BoolColumn) -> float:
        """Return the factor of this constraint in scores, larger for more domains.

        As in kube-scheduler, so that a constraint with few domains does not outweigh others.
        """
        if self.spread.topology_key == HOSTNAME_LABEL:
            count = int(candidates.sum())
        else:
            count = len(np.unique(self._of_row[candidates]))
        return float(np.log(count + 2))

    def _least(self) -> int:
        """Return the smallest number of pods in a domain; 0 with fewer domains than required."""
        if len(self._domains) < max(self.spread.min_domains, 1):
            return 0
        return int(self._pods[self._domains].min())
