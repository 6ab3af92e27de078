"""What plugins find out about objects between cycles, for events and metrics.

Plugins are pure, so they collect it, and the engine takes it once a cycle.
"""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from bindery.scheduler.model.problems import ObjectProblem

OTHER_ZONES: Final = "OtherZones"
"""The reason of an answer that follows later: the pod runs, and on other zones than predicted."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node decided about a pod with predicted zones."""

    reason: str
    """The kubelet's reason for refusing the pod, or `OTHER_ZONES`; "" if it was admitted."""

    @property
    def is_first(self) -> bool:
        """Whether it is the first answer about the pod."""
        return self.reason != OTHER_ZONES


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
