"""The prediction for many nodes at once, in arrays."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.prediction.requests import PodRequest
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
        zone_count: int [N]; the zones that the node has. Every node without zones (0) admits.
        policy: int [N]; code in POLICIES.
        scope: int [N]; code in SCOPES.
        has_static_cpus: bool [N].
        has_static_memory: bool [N].
        prefer_closest: bool [N].
        threads_per_core: int [N]; 1 without full-pcpus-only.
        split: float64 [N, Z].
        groups: uint8 [N, Z]; masks.
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


@dataclass(frozen=True)
class Predictions:
    """What each of K nodes will decide about a pod; `plain.Prediction` explains the attributes.

    Attributes:
        admit: bool [K].
        zones: uint8 [K]; masks of zones.
        preferred: bool [K].
        used: uint8 [K]; the number of zones in `zones`.
    """

    admit: NDArray[np.bool_]
    zones: NDArray[np.uint8]
    preferred: NDArray[np.bool_]
    used: NDArray[np.uint8]


def predict(
    arrays: ZoneArrays, request: PodRequest, nodes: NDArray[np.intp] | None = None
) -> Predictions:
    """Return what each node will decide about a pod that asks for `request`.

    Args:
        arrays: the zones of all nodes.
        request: what the pod asks for.
        nodes: the rows to ask, K of them; None for all.
    """
    raise NotImplementedError


def node_zones(arrays: ZoneArrays, node: int) -> "object":
    """Return one row as `zones.NodeZones`, for `plain.predict` and `plain.take`."""
    raise NotImplementedError
