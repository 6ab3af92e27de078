"""Disruption budgets: which pods they cover, and when one allows more evictions than before.

Owned by cluster.py. The Eviction API decides whether a pod may be evicted. The scheduler uses
budgets to see which evictions count against the same budget, when to try a refused eviction again,
and which budget blocks one. The status of budgets may be late.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import msgspec

from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.store import Key, key_of
from bindery.scheduler.model.jobs import Task, Uid
from bindery.scheduler.model.nodereading import is_ready

_MOST_EASINGS = 1000
"""Number of remembered changes, for evictions in flight. If an older change is missed, the
eviction is tried again after `SPARE_S`."""


class Budgets:
    """The disruption budgets of all namespaces. `pod_of` returns the pod of a task, if known."""

    def __init__(self, pod_of: Callable[[Task], Pod | None]) -> None:
        self._pod_of = pod_of
        self._by_namespace: defaultdict[str, dict[Key, DisruptionBudget]] = defaultdict(dict)
        self._eased: deque[tuple[DisruptionBudget, ...]] = deque(maxlen=_MOST_EASINGS)
        self.easings = 0
        """Number of times that a budget allowed more than before."""

    def put(self, budget: DisruptionBudget) -> tuple[DisruptionBudget, ...]:
        """Add or update a budget.

        Returns:
            Its states before and after if the new one may allow evictions that the old one refused;
            otherwise nothing. Pods covered by either state may be evicted now.
        """
        known = self._by_namespace[budget.metadata.namespace]
        before = known.get(key_of(budget.metadata))
        known[key_of(budget.metadata)] = budget
        # A new budget allows no more than no budget did.
        if before is None or not _allows_more(before, budget):
            return ()
        return self._note(before, budget)

    def remove(self, budget: DisruptionBudget) -> tuple[DisruptionBudget, ...]:
        """Remove a budget and return it. The pods that it covered may be evicted now."""
        known = self._by_namespace[budget.metadata.namespace]
        before = known.pop(key_of(budget.metadata), None)
        if not known:
            del self._by_namespace[budget.metadata.namespace]
        return () if before is None else self._note(before)

    def eased_since(self, easings: int) -> tuple[DisruptionBudget, ...]:
        """Return the states of budgets that allowed more since `easings` had the given value."""
        fresh = min(self.easings - easings, len(self._eased))
        return tuple(state for states in islice(reversed(self._eased), fresh) for state in states)

    def covering(self, namespace: str, labels: Mapping[str, str]) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that cover a pod of `namespace` with `labels`, sorted by name."""
        budgets = self._by_namespace.get(namespace, {})
        found = [each for each in budgets.values() if each.covers(namespace, dict(labels))]
        return tuple(sorted(found, key=lambda budget: budget.metadata.name))

    def count(
        self, tasks: Iterable[Task], counted: dict[Key, DisruptionBudget]
    ) -> tuple[Uid, str] | None:
        """Count evictions of `tasks` against their budgets, and write the new ones to `counted`.

        Returns UID and budget of the first pod that may not go; None if all may go together.
        """
        for task in tasks:
            for known in self.of(task):
                key = key_of(known.metadata)
                budget = counted.get(key, known)
                allowed = budget.status.disruptions_allowed
                if allowed <= 0:
                    return task.uid, budget.full_name
                status = msgspec.structs.replace(budget.status, disruptions_allowed=allowed - 1)
                counted[key] = msgspec.structs.replace(budget, status=status)
        return None

    def of(self, task: Task) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that cover the pod of `task`, sorted by name."""
        pod = self._pod_of(task)
        return self.covering(task.namespace, pod.metadata.labels) if pod is not None else ()

    def blocking(self, task: Task) -> DisruptionBudget | None:
        """Return the first budget that forbids the eviction of the pod of `task`; None if none."""
        return next((each for each in self.of(task) if each.status.disruptions_allowed <= 0), None)

    def apply_to(self, task: Task) -> bool:
        """Return whether budgets apply to the eviction of `task`: whether its pod is ready."""
        pod = self._pod_of(task)
        return pod is not None and is_ready(pod)

    def _note(self, *states: DisruptionBudget) -> tuple[DisruptionBudget, ...]:
        self.easings += 1
        self._eased.append(states)
        return states


def _allows_more(before: DisruptionBudget, now: DisruptionBudget) -> bool:
    """Return whether `now` may allow an eviction that `before` refused."""
    if now.spec != before.spec or now.metadata.uid != before.metadata.uid:
        return True
    # The API server refuses all evictions until the controller has observed the budget's spec.
    if now.status.observed_generation != before.status.observed_generation:
        return True
    return now.status.disruptions_allowed > before.status.disruptions_allowed
