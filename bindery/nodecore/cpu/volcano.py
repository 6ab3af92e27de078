"""The CPU provider of Volcano's plugin numa-aware: it looks at containers alone, not at QoS."""

from bindery.nodecore import masks
from bindery.nodecore.cpu.hints import generate
from bindery.nodecore.cpu.packed import take_packed
from bindery.nodecore.cpu.static import StaticPolicy
from bindery.nodecore.cpu.topology import CpuTopology
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.topology.hints import Hint


def hints(
    topology: CpuTopology, available: CpuSet, count: int, reserved: CpuSet = EMPTY
) -> list[Hint] | None:
    """Return the hints for whole CPUs of a container; None, which is no preference, for none."""
    if count == 0:
        return None
    policy = StaticPolicy(topology, reserved)
    return generate(policy, available - reserved, EMPTY, count)


def take(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    mask: int | None = None,
    reserved: CpuSet = EMPTY,
) -> CpuSet:
    """Return the CPUs of a container: those near `mask` first; none if there are not so many.

    They are taken as the kubelet takes them (`packed`).
    """
    left = available - reserved
    near = left if mask is None else left & topology.cpus_in(masks.nodes_of(mask))
    try:
        taken = take_packed(topology, near, min(count, len(near)))
        return taken | take_packed(topology, left - taken, count - len(taken))
    except AllocationError:
        return EMPTY
