"""The zones of many nodes in arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.prediction.zones import Counts, NodeZones
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import CONTAINER_SCOPE, POD_SCOPE

MAX_ZONES: Final = 8

POLICIES: Final = (
    policies.NONE,
    policies.BEST_EFFORT,
    policies.RESTRICTED,
    policies.SINGLE_NUMA_NODE,
)
"""A policy's code in `ZoneArrays.policy` is its place here."""

SCOPES: Final = (CONTAINER_SCOPE, POD_SCOPE)
"""A scope's code in `ZoneArrays.scope` is its place here."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ZoneArrays:
    """The zones of many nodes. `zones.NodeZones` explains the attributes.

    N nodes, Z zones (the most that a node has, at most 8), R resources. Zones that a node does not
    have are 0 in all arrays. Units: whole CPUs, bytes, devices.

    Attributes:
        resources: the names of the R resources: "cpu", "memory", "hugepages-…", devices.
        free: float64 [N, Z, R].
        totals: float64 [N, Z, R].
        zone_count: int64 [N]; the zones that the node has. A node without zones (0) admits.
        policy: int64 [N]; code in POLICIES.
        scope: int64 [N]; code in SCOPES.
        has_static_cpus: bool [N].
        has_static_memory: bool [N].
        prefer_closest: bool [N].
        threads_per_core: int64 [N]; 0 without full-pcpus-only.
        split: float64 [N, Z].
        groups: uint8 [N, Z]; masks. 0 is an unused zone.
        distances: float64 [N, Z, Z].
    """

    resources: tuple[str, ...]
    free: Floats
    totals: Floats
    zone_count: NDArray[np.int64]
    policy: NDArray[np.int64]
    scope: NDArray[np.int64]
    has_static_cpus: NDArray[np.bool_]
    has_static_memory: NDArray[np.bool_]
    prefer_closest: NDArray[np.bool_]
    threads_per_core: NDArray[np.int64]
    split: Floats
    groups: NDArray[np.uint8]
    distances: Floats

    def node(self, row: int) -> NodeZones:
        """Return one row for the plain predictor."""
        zones = range(int(self.zone_count[row]))
        return NodeZones(
            tuple(self._counts(self.free[row, zone], row) for zone in zones),
            tuple(self._counts(self.totals[row, zone], row) for zone in zones),
            POLICIES[self.policy[row]],
            SCOPES[self.scope[row]],
            bool(self.has_static_cpus[row]),
            bool(self.has_static_memory[row]),
            bool(self.prefer_closest[row]),
            int(self.threads_per_core[row]),
            tuple(int(self.split[row, zone]) for zone in zones),
            tuple(int(self.groups[row, zone]) for zone in zones),
            tuple(tuple(self.distances[row, zone, : len(zones)].tolist()) for zone in zones),
        )

    def write(self, row: int, node: NodeZones) -> None:
        """Set what changes when pods come and go: what is free, split CPUs, groups of memory."""
        for zone, counts in enumerate(node.free):
            self.free[row, zone] = [counts.get(name, 0) for name in self.resources]
        self.split[row, : len(node.split)] = node.split
        self.groups[row, : len(node.groups)] = node.groups

    def _counts(self, amounts: Floats, row: int) -> Counts:
        listed = self.totals[row].any(axis=0)
        return {
            name: int(amount)
            for name, amount, is_listed in zip(self.resources, amounts, listed, strict=True)
            if is_listed
        }


def stack(nodes: Sequence[NodeZones]) -> ZoneArrays:
    """Return the arrays of `nodes`, one row for each; nodes have at most 8 zones."""
    names = sorted({name for node in nodes for counts in node.totals for name in counts})
    most = max((len(node.free) for node in nodes), default=0)
    arrays = _zeros(tuple(names), len(nodes), most)
    for row, node in enumerate(nodes):
        count = len(node.free)
        for zone, totals in enumerate(node.totals):
            arrays.totals[row, zone] = [totals.get(name, 0) for name in names]
        arrays.write(row, node)
        arrays.groups[row, :count] = node.memory_groups
        if node.distances:
            arrays.distances[row, :count, :count] = node.distances
        arrays.zone_count[row] = count
        arrays.policy[row] = POLICIES.index(node.policy)
        arrays.scope[row] = SCOPES.index(node.scope)
        arrays.has_static_cpus[row] = node.has_static_cpus
        arrays.has_static_memory[row] = node.has_static_memory
        arrays.prefer_closest[row] = node.prefer_closest
        arrays.threads_per_core[row] = node.threads_per_core
    return arrays


def _zeros(names: tuple[str, ...], count: int, zones: int) -> ZoneArrays:
    return ZoneArrays(
        names,
        np.zeros((count, zones, len(names))),
        np.zeros((count, zones, len(names))),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        np.zeros((count, zones)),
        np.zeros((count, zones), np.uint8),
        np.zeros((count, zones, zones)),
    )
