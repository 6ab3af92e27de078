"""PodDisruptionBudgets, as the scheduler reads them.

Whether a pod may be evicted is not decided here: the Eviction API counts by itself.
"""

from typing import Final

import msgspec

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.watched import KubeObject


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The pods that a budget covers."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many of them may go now, as the disruption controller counts."""

    disruptions_allowed: int = 0
    observed_generation: int = 0
    """Of the budget's spec, when it was last counted; 0: it has not been."""


class DisruptionBudget(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A PodDisruptionBudget, as far as it is read."""

    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)

    def covers(self, namespace: str, labels: dict[str, str]) -> bool:
        """Return whether a pod of `namespace` with `labels` counts against this budget."""
        selector = self.spec.selector
        if selector is None or self.metadata.namespace != namespace:
            return False
        return selector.matches(labels)

    @property
    def full_name(self) -> str:
        """Its namespace and name, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


DISRUPTION_BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, DisruptionBudget
)
