"""What plugins find out about objects between cycles, for events and metrics.

Plugins are pure, so they collect it, and the engine takes it once a cycle.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bindery.scheduler.model.problems import ObjectProblem


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node decided about a pod with predicted zones."""

    reason: str
    """The kubelet's reason for refusing the pod; "" if it was admitted."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a plugin since the last cycle."""

    problems: tuple[ObjectProblem, ...] = ()
    answers: tuple[NodeAnswer, ...] = ()


@runtime_checkable
class HasFindings(Protocol):
    """Finds problems of objects, and answers for nodes, that users see."""

    def take_findings(self) -> Findings:
        """Return what was found since the last call; called once a cycle."""
