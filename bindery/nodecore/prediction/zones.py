"""The zones of one node as counts, for the plain predictor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bindery.nodecore.pods import HUGE_PAGES_PREFIX, MEMORY
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import CONTAINER_SCOPE

Counts = Mapping[str, int]
"""Resource -> whole CPUs ("cpu"), bytes (memory, huge pages) or devices."""


@dataclass(frozen=True)
class NodeZones:
    """What one node's zones have.

    Attributes:
        free: what each zone can still give, without reserved CPUs and memory.
        totals: what decides how few zones could ever do: all CPUs of the machine with the reserved
            ones (capacity), memory and huge pages without the reserved ones (allocatable), all
            devices with the unhealthy ones (capacity). A resource without any total on a node's
            zones is not aligned there.
        policy: the topology manager's policy.
        scope: "container" or "pod".
        has_static_cpus: whether the CPU manager's policy is static.
        has_static_memory: whether the memory manager's policy is Static.
        prefer_closest: the topology manager's option prefer-closest-numa-nodes.
        threads_per_core: with full-pcpus-only, the CPUs of a core; else 0.
        split: free CPUs of each zone that share a core with a reserved CPU; none if it is empty.
        groups: the mask of zones that a zone's memory is used together with: 0 for an unused zone,
            its own bit for one that is used alone. Empty: zones with less free memory than total
            are used alone.
        distances: the distance of each zone to each; needed with `prefer_closest`.
    """

    free: tuple[Counts, ...]
    totals: tuple[Counts, ...]
    policy: str = policies.NONE
    scope: str = CONTAINER_SCOPE
    has_static_cpus: bool = True
    has_static_memory: bool = True
    prefer_closest: bool = False
    threads_per_core: int = 0
    split: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] = field(default_factory=tuple)

    @property
    def memory_groups(self) -> tuple[int, ...]:
        """The groups of memory, guessed from what is used if they are not known."""
        return self.groups or tuple(
            1 << zone if _is_used(free, totals) else 0
            for zone, (free, totals) in enumerate(zip(self.free, self.totals, strict=True))
        )


def is_memory(resource: str) -> bool:
    """Return whether the memory manager serves the resource."""
    return resource == MEMORY or resource.startswith(HUGE_PAGES_PREFIX)


def _is_used(free: Counts, totals: Counts) -> bool:
    return any(free.get(name, 0) < total for name, total in totals.items() if is_memory(name))
