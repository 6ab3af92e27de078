"""Judges evictions against disruption budgets: none begins a plan that a budget cannot allow.

The API server refuses the later evictions of such a plan. Then the first pods were lost for
nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import Change
from tests.histories.calm import RECOVERS_S, Calm, in_force
from tests.histories.disruption import is_ready
from tests.histories.plan import Plan

_BEHIND_S: Final = 10.0
"""From what a plan was made of to its first eviction."""


class BudgetJudge:
    """Knows what budgets allow, and since when pods are ready. A budget has its gang's name."""

    def __init__(self, plan: Plan) -> None:
        self._calm = Calm(plan)
        self._allowed: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        """Budget -> how many evictions it allows, each with the moment from which it does."""
        self._ready_s: dict[str, float] = {}
        """UID of a pod -> since when it is ready."""

    def see_budget(self, change: Change) -> None:
        """Take in a write of a budget."""
        status = change.version.object.get("status") or {}
        allowed = status.get("disruptionsAllowed", 0)
        self._allowed[change.key[1]].append((change.at_s, allowed))

    def see_pod(self, pod: Pod, at_s: float) -> None:
        """Take in a write of a pod."""
        if not is_ready(pod):
            self._ready_s.pop(pod.metadata.uid, None)
        else:
            self._ready_s.setdefault(pod.metadata.uid, at_s)

    def problems(self, who: str, gang: str, pods: Sequence[Pod], change: Change) -> Iterator[str]:
        """Yield that the budget of a gang forbids the evictions of its `pods`, which begin now.

        `who`: what happens, in words.
        """
        since_s, states = change.at_s - _BEHIND_S, self._allowed.get(gang, ())
        caller = change.writer.caller
        if not states or not self._calm.is_calm(
            caller, since_s, change.at_s, recovers_s=RECOVERS_S
        ):
            return
        most = max(in_force(states, since_s))
        count = sum(self._ready_s.get(pod.metadata.uid, change.at_s) < since_s for pod in pods)
        if 1 < count > most:
            yield f"{who}, whose budget allows {most} of {count} evictions"
