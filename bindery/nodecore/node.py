"""What the resource managers ask of the rest of the node agent."""

from collections.abc import Sequence
from typing import Protocol

from bindery.nodecore.pods import Pod
from bindery.nodecore.topology.hints import Hint


class Node(Protocol):
    """The pods of the node, as the managers see them."""

    def active_pods(self) -> Sequence[Pod]:
        """Return the pods that are admitted and not terminated."""

    def sources_ready(self) -> bool:
        """Return whether all pods are known; before that no state counts as stale."""


class NumaAffinity(Protocol):
    """The decisions of the topology manager about the NUMA nodes of containers."""

    def affinity(self, pod_uid: str, container: str) -> Hint:
        """Return the decision for a container; no mask and not preferred if there is none."""
