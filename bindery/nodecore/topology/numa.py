"""The NUMA nodes that the topology manager chooses from, and the distances between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import NumaNode
from bindery.nodecore.masks import mask_of, narrowness, nodes_of


@dataclass(frozen=True)
class NumaInfo:
    """NUMA nodes and distances.

    Attributes:
        nodes: the ids of all NUMA nodes.
        distances: node -> its distance to each node by id; empty if they are not used.
    """

    nodes: tuple[int, ...]
    distances: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def everything(self) -> int:
        """The mask of all NUMA nodes."""
        return mask_of(self.nodes)

    def mean_distance(self, mask: int) -> float:
        """Return the mean of all distances within `mask`, each node to itself included."""
        nodes = nodes_of(mask)
        if not nodes:
            return 0.0
        return sum(self.distances[one][other] for one in nodes for other in nodes) / len(nodes) ** 2

    def closest(self, mask: int, other: int) -> int:
        """Return the mask with fewer nodes, else with the lower mean distance, else the lower."""
        if mask.bit_count() != other.bit_count():
            return self.narrowest(mask, other)
        return min(mask, other, key=self.closeness)

    def closeness(self, mask: int) -> tuple[int, float, int]:
        """Return a sort key: number of nodes, mean distance, the mask as a number."""
        return mask.bit_count(), self.mean_distance(mask), mask

    @staticmethod
    def narrowest(mask: int, other: int) -> int:
        """Return the mask with fewer nodes, else the one with the lower ids."""
        return min(mask, other, key=narrowness)


def numa_info(nodes: Sequence[NumaNode], *, with_distances: bool) -> NumaInfo:
    """Return the NUMA nodes of a machine.

    Raises:
        ConfigurationError: a distance is needed and not known, or an id is above 63.
    """
    ids = tuple(node.id for node in nodes)
    mask_of(ids)
    if not with_distances:
        return NumaInfo(ids)
    distances = {node.id: node.distances for node in nodes if node.distances is not None}
    if len(distances) != len(ids) or any(len(each) <= max(ids) for each in distances.values()):
        raise ConfigurationError(
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
        )
    return NumaInfo(ids, distances)
