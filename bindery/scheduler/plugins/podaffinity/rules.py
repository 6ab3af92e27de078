"""The nodes that pod affinity and anti-affinity open, close and score for pods of one shape.

As kube-scheduler's plugin InterPodAffinity (Kubernetes 1.36): a node must be in a domain with a
matching pod for each term of required affinity, in no domain with a pod that a term of required
anti-affinity selects, and in no domain of a pod whose required anti-affinity selects the shape.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.label_domains import NO_DOMAIN, Domains
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.plugins.podaffinity.populations import NONE, DomainCounts, Pods

HIGHEST_SCORE = 100.0

_NOW, _LATER = 0, 1


class Closings:
    """How many terms close each row: [now or later, row]."""

    def __init__(self, row_count: int) -> None:
        self._closed: NDArray[np.int32] = np.zeros((2, row_count), dtype=np.int32)

    def mask(self, when: int) -> BoolColumn:
        """Return a mask of the rows that at least one term closes."""
        return np.asarray(self._closed[when] > 0)

    def at(self, when: int, row: int) -> bool:
        """Return whether at least one term closes the row."""
        return bool(self._closed[when, row] > 0)

    def change(self, domains: Domains, domain: int, now: int, later: int) -> bool:
        """Add to the numbers of a domain's rows; return whether there was anything to add."""
        if now or later:
            rows = domains.rows(domain)
            self._closed[_NOW, rows] += now
            self._closed[_LATER, rows] += later
        return bool(now or later)

    def add_everywhere(self) -> None:
        """Count one more term against all rows."""
        self._closed += 1


class AffinityRules:
    """The rules for one shape. The listeners of its counts keep it up to date."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._row_count = row_count = len(state.nodes.nodes)
        self._version = 0
        self._unmet: Closings | None = None
        """Terms of required affinity without a matching pod."""
        self._required: list[DomainCounts] = []
        self._is_own_peer = False
        self._has_keys: BoolColumn = np.ones(row_count, dtype=np.bool_)
        self._kept_away: Closings | None = None
        """Terms of the shape's own anti-affinity."""
        self._shut_out: Closings | None = None
        """Terms of other pods' anti-affinity."""
        self._raw_scores: NDArray[np.int64] | None = None

    # -- building --------------------------------------------------------------------------------

    def require(self, counts: Sequence[DomainCounts], *, is_own_peer: bool) -> None:
        """Require a pod of each of `counts` in the domain.

        `is_own_peer`: whether the pod itself matches all terms. Then the first such pod may go to
        any node with the labels, because it would wait for itself otherwise.
        """
        self._required, self._is_own_peer = list(counts), is_own_peer
        self._unmet = Closings(self._row_count)
        for each in counts:
            self._has_keys &= each.domains.of_row != NO_DOMAIN
            self._unmet.add_everywhere()
            self._follow(each, partial(self._meet, each.domains))

    def keep_away_from(self, counts: DomainCounts) -> None:
        """Close the domains with a pod of `counts`: a term of the shape's own anti-affinity."""
        if self._kept_away is None:
            self._kept_away = Closings(self._row_count)
        self._follow(counts, partial(self._close, self._kept_away, counts.domains))

    def shut_out_by(self, counts: DomainCounts) -> None:
        """Close the domains with a pod of `counts`: a term of these pods' anti-affinity."""
        if self._shut_out is None:
            self._shut_out = Closings(self._row_count)
        self._follow(counts, partial(self._close, self._shut_out, counts.domains))

    def prefer(self, counts: DomainCounts, weight: int) -> None:
        """Score the domains with pods of `counts`, `weight` for each pod."""
        if self._raw_scores is None:
            self._raw_scores = np.zeros(self._row_count, dtype=np.int64)
        self._follow(counts, partial(self._score, self._raw_scores, counts.domains, weight))

    # -- RowRules --------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with each change, and is odd while the plan is about a later moment."""
        return 2 * self._version + self._state.is_later

    def open_now(self) -> BoolColumn:
        """Return a mask of the rows on which a pod may be placed now."""
        return self._open(_NOW)

    def open_later(self) -> BoolColumn:
        """Return a mask of the rows that are open after all releasing pods have gone."""
        return self._open(_LATER)

    def open_for_peers(self) -> BoolColumn:
        """Return the rows that would be open if peers were there, after all releases."""
        return self._without_closed(self._has_keys, _LATER)

    def is_open(self, row: int, *, later: bool) -> bool:
        """Return whether the row is open now, or `later`, after all releasing pods have gone."""
        when = _LATER if later else _NOW
        if any(each is not None and each.at(when, row) for each in self._against):
            return False
        if self._unmet is None or self._is_first:
            return bool(self._has_keys[row])
        return not self._unmet.at(when, row)

    def scores(self) -> NDArray[np.float64] | None:
        """Return scores from 0 to `HIGHEST_SCORE`, the latter for the most preferred domain."""
        raw = self._raw_scores
        if raw is None or not len(raw):
            return None
        lowest, range_ = raw.min(), np.ptp(raw)
        return np.asarray(HIGHEST_SCORE * (raw - lowest) / range_) if range_ else None

    def failures(self) -> Iterator[NodeFailure]:
        """Yield the reasons against nodes, after all releasing pods have gone."""
        if self._unmet is not None:
            yield NodeFailure("have no domain for its pod affinity", ~self._has_keys)
            unmet = ~self._affinity(_LATER) & self._has_keys
            yield NodeFailure("did not match pod affinity rules", unmet)
        if self._kept_away is not None:
            against = self._kept_away.mask(_LATER)
            yield NodeFailure("did not match pod anti-affinity rules", against, is_lasting=False)
        if self._shut_out is not None:
            against = self._shut_out.mask(_LATER)
            text = "did not match anti-affinity rules of existing pods"
            yield NodeFailure(text, against, is_lasting=False)

    # -- inside ----------------------------------------------------------------------------------

    def _follow(self, counts: DomainCounts, listener: "partial[None]") -> None:
        for domain, pods in counts.items():
            listener(domain, NONE, pods)
        counts.listen(listener)

    @property
    def _against(self) -> tuple[Closings | None, Closings | None]:
        return self._kept_away, self._shut_out

    def _open(self, when: int) -> BoolColumn:
        return self._without_closed(self._affinity(when), when)

    def _without_closed(self, mask: BoolColumn, when: int) -> BoolColumn:
        for closings in self._against:
            if closings is not None:
                mask = mask & ~closings.mask(when)
        return mask

    def _affinity(self, when: int) -> BoolColumn:
        if self._unmet is None or self._is_first:
            return self._has_keys
        return ~self._unmet.mask(when)

    @property
    def _is_first(self) -> bool:
        """Whether the pod matches its own terms, and no other pod does.

        Releasing pods count: else a plan could evict the peers of a pod to make it the first.
        """
        if not self._is_own_peer:
            return False
        totals = (counts.total for counts in self._required)
        if self._state.is_later:
            return all(pods.staying == 0 for pods in totals)
        return all(pods.present == 0 for pods in totals)

    def _meet(self, domains: Domains, domain: int, before: Pods, after: Pods) -> None:
        assert self._unmet is not None
        now = (before.held > 0) - (after.held > 0)
        later = (before.staying > 0) - (after.staying > 0)
        self._unmet.change(domains, domain, now, later)
        self._version += 1  # also the total may have changed, and with it the first pod's choice

    def _close(
        self, closings: Closings, domains: Domains, domain: int, before: Pods, after: Pods
    ) -> None:
        # A promised pod comes for certain, so it counts now. A releasing pod is still there.
        now = (after.present > 0) - (before.present > 0)
        later = (after.staying > 0) - (before.staying > 0)
        self._version += closings.change(domains, domain, now, later)

    def _score(
        self,
        raw: NDArray[np.int64],
        domains: Domains,
        weight: int,
        domain: int,
        before: Pods,
        after: Pods,
    ) -> None:
        change = weight * (after.staying - before.staying)
        if change:
            raw[domains.rows(domain)] += change
            self._version += 1
