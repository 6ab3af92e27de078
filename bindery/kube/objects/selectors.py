"""Label selectors of the Kubernetes API as structs.

Part of pod specs, volume claims and PodDisruptionBudgets. The form for matching many pods is in
`bindery.scheduler.model.selectors`.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from bindery.kube.objects.declaring import one_of


class LabelRequirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One expression of a label selector."""

    key: str
    operator: Annotated[str, one_of("In", "NotIn", "Exists", "DoesNotExist")]
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A label selector, as in Kubernetes."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelRequirement] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` are selected; an empty selector selects all.

        An unknown operator is never met.
        """
        wanted = (self.match_labels or {}).items()
        if not all(labels.get(key) == value for key, value in wanted):
            return False
        return all(_holds(each, labels) for each in self.match_expressions or ())


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    if requirement.operator == "In":
        return value in values
    if requirement.operator == "NotIn":
        return value not in values
    if requirement.operator == "Exists":
        return value is not None
    return requirement.operator == "DoesNotExist" and value is None
