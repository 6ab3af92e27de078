"""Evaluates selectors of labels for one object, like Kubernetes' own components.

For single objects; `bindery.scheduler.model.labels` evaluates selectors for all nodes at once.
"""

import re
from collections.abc import Iterable, Mapping

from bindery.kube.objects.podspec import NodeSelectorRequirement, NodeSelectorTerm

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def meets(item: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether `labels` meet one requirement; an unknown operator is never met."""
    value, values = labels.get(item.key), item.values or []
    match item.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return len(values) == 1 and _compares(value, item.operator, values[0])
        case _:
            return False


def selects_node(
    terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str], node_name: str
) -> bool:
    """Return whether one of `terms` selects the node; an empty term selects none."""
    return any(_selects(term, labels, node_name) for term in terms)


def _selects(term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    return all(meets(item, labels) for item in expressions) and all(
        item.key == "metadata.name" and meets(item, {"metadata.name": node_name}) for item in fields
    )


def _compares(value: str | None, operator: str, bound: str) -> bool:
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
        return False
    return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
