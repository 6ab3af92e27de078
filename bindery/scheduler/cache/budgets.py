"""Disruption budgets: which pods they cover, and when one allows more than before.

Kept by cluster.py. Nothing is planned by them: whether a pod may be evicted is up to the Eviction
API. They say which evictions count against the same budget, when it is worth asking again, and
which budget is in the way.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import islice

from bindery.kube.budgets import DisruptionBudget
from bindery.kube.store import Key, key_of

_MOST_EASINGS = 1000
"""How many are kept for evictions under way; an older one is found out by asking again."""


class Budgets:
    """The disruption budgets of all namespaces."""

    def __init__(self) -> None:
        self._by_namespace: defaultdict[str, dict[Key, DisruptionBudget]] = defaultdict(dict)
        self._eased: deque[tuple[DisruptionBudget, ...]] = deque(maxlen=_MOST_EASINGS)
        self.easings = 0
        """How often a budget has allowed more than before."""

    def put(self, budget: DisruptionBudget) -> tuple[DisruptionBudget, ...]:
        """Take in a budget's state.

        Returns:
            The states, before and after, by which pods may be evicted now that could not be before;
            none if there are no such pods.
        """
        known = self._by_namespace[budget.metadata.namespace]
        before = known.get(key_of(budget.metadata))
        known[key_of(budget.metadata)] = budget
        if before is None or not _allows_more(before, budget):
            return ()
        return self._note(before, budget)

    def remove(self, budget: DisruptionBudget) -> tuple[DisruptionBudget, ...]:
        """Forget a budget; return it: the pods that it covered may be evicted now."""
        known = self._by_namespace[budget.metadata.namespace]
        before = known.pop(key_of(budget.metadata), None)
        if not known:
            del self._by_namespace[budget.metadata.namespace]
        return () if before is None else self._note(before)

    def eased_since(self, easings: int) -> tuple[DisruptionBudget, ...]:
        """Return the states of budgets that have allowed more since there were `easings`."""
        fresh = min(self.easings - easings, len(self._eased))
        return tuple(state for states in islice(reversed(self._eased), fresh) for state in states)

    def covering(self, namespace: str, labels: Mapping[str, str]) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that count a pod of `namespace` with `labels`, by name."""
        budgets = self._by_namespace.get(namespace, {})
        found = [each for each in budgets.values() if each.covers(namespace, dict(labels))]
        return tuple(sorted(found, key=lambda budget: budget.metadata.name))

    def _note(self, *states: DisruptionBudget) -> tuple[DisruptionBudget, ...]:
        self.easings += 1
        self._eased.append(states)
        return states


def _allows_more(before: DisruptionBudget, now: DisruptionBudget) -> bool:
    """Return whether an eviction that was refused before may pass now."""
    if now.spec != before.spec or now.metadata.uid != before.metadata.uid:
        return True
    # A budget that has just been counted for the first time was refused for that alone.
    if now.status.observed_generation != before.status.observed_generation:
        return True
    return now.status.disruptions_allowed > before.status.disruptions_allowed
