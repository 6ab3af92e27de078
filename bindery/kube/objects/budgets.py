"""PodDisruptionBudgets, as the scheduler reads them.

The Eviction API decides whether a pod may be evicted, by its own counts.
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
    """The number of covered pods that may be evicted now, from the disruption controller."""

    disruptions_allowed: int = 0
    observed_generation: int = 0
    """Generation of the counted spec; 0: not counted yet."""


class DisruptionBudget(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """The fields of a PodDisruptionBudget that are read."""

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
        """Namespace and name of the budget."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


DISRUPTION_BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, DisruptionBudget
)
