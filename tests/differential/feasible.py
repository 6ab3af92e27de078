"""The filters of kube-scheduler, asked about pods."""

from collections.abc import Sequence
from typing import Any

from tests.goprograms import ask

Manifest = dict[str, Any]


def feasible_nodes(questions: Sequence[Manifest]) -> list[set[str]]:
    """Return for each of `questions` the nodes that kube-scheduler's filters let through."""
    return [set(answer["nodes"]) for answer in ask("feasible", questions)]
