"""How much of each device of one node is taken: by bound pods, plans and promises.

Made by `ledger` per node and session, read by `fit`. Invariant: taking back what was added leaves
every number as it was.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.nodedevices import MigPlacement
from bindery.api.hami.poddevices import NOTHING, Holding
from bindery.scheduler.plugins.node_lock.fleet import Held


@dataclass
class Tally:
    """What is taken of a node's devices."""

    used: defaultdict[str, Holding] = field(default_factory=lambda: defaultdict(lambda: NOTHING))
    """UUID -> the sum over all pods."""
    instances: defaultdict[str, list[MigPlacement]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """UUID -> the slices of its MIG instances."""

    def add(self, devices: Mapping[str, Holding], mig: tuple[MigAllocation, ...]) -> None:
        """Take in what a pod holds."""
        for uuid, holding in devices.items():
            self.used[uuid] += holding
        for each in mig:
            self.instances[each.gpu_uuid].append(each.placement)

    def take_back(self, devices: Mapping[str, Holding], mig: tuple[MigAllocation, ...]) -> None:
        """Undo `add`."""
        for uuid, holding in devices.items():
            self.used[uuid] -= holding
        for each in mig:
            self.instances[each.gpu_uuid].remove(each.placement)

    def copy(self) -> "Tally":
        """Return one that can be changed by itself."""
        copied = Tally()
        copied.used.update(self.used)
        for uuid, placements in self.instances.items():
            copied.instances[uuid] = list(placements)
        return copied


@dataclass
class NodeUsage:
    """Both views of a node: `now` with pods that are leaving, `later` without them."""

    now: Tally = field(default_factory=Tally)
    later: Tally = field(default_factory=Tally)
    promise_count: int = 0
    """How many pods are promised room that is to come."""

    def hold(self, held: Held) -> None:
        """Take in a pod that stays."""
        self.now.add(held.devices, held.mig)
        self.later.add(held.devices, held.mig)

    def let_go(self, held: Held) -> None:
        """Undo `hold`."""
        self.now.take_back(held.devices, held.mig)
        self.later.take_back(held.devices, held.mig)

    def promise(self, held: Held) -> None:
        """Take in a pod that waits for room to come."""
        self.later.add(held.devices, held.mig)
        self.promise_count += 1

    def break_promise(self, held: Held) -> None:
        """Undo `promise`."""
        self.later.take_back(held.devices, held.mig)
        self.promise_count -= 1

    def release(self, held: Held) -> None:
        """Note that a pod which is held is leaving."""
        self.later.take_back(held.devices, held.mig)

    def keep(self, held: Held) -> None:
        """Undo `release`."""
        self.later.add(held.devices, held.mig)
