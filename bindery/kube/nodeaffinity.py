"""Whether one node is what a pod's node selector and required node affinity ask for.

The scheduler asks many nodes at once (`bindery.scheduler.model.labels`); this is the plain form for
one node, as the kubelet asks it.
"""

import re
from collections.abc import Mapping
from typing import Final

from bindery.kube.podspec import NodeSelector as RequiredAffinity
from bindery.kube.podspec import NodeSelectorRequirement, NodeSelectorTerm

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NAME_FIELD: Final = "metadata.name"


def matches(
    node_selector: Mapping[str, str] | None,
    required: RequiredAffinity | None,
    name: str,
    labels: Mapping[str, str],
) -> bool:
    """Return whether the node called `name` with `labels` is selected.

    A term without expressions selects no node, as in Kubernetes.
    """
    if any(labels.get(key) != value for key, value in (node_selector or {}).items()):
        return False
    if required is None:
        return True
    return any(_holds(term, name, labels) for term in required.node_selector_terms)


def _holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    of_fields = {_NAME_FIELD: name}
    return all(_meets(one, labels) for one in expressions) and all(
        _meets(one, of_fields) for one in fields
    )


def _meets(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    value, wanted = values.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if value is not None and len(wanted) == 1:
            return _compares(value, requirement.operator, wanted[0])
    return False


def _compares(value: str, operator: str, bound: str) -> bool:
    if not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
        return False
    return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
