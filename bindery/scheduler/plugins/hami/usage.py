"""The usage of the devices of one node, by bound pods, planned pods and promises.

`ledger` has one for each node in a session, `fit` reads it. Invariant: undoing an addition restores
every amount.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.nodedevices import MigPlacement
from bindery.api.hami.poddevices import NOTHING, Holding
from bindery.scheduler.plugins.hami.fleet import HeldDevices


@dataclass
class Tally:
    """The sums over the pods on a node."""

    used: defaultdict[str, Holding] = field(default_factory=lambda: defaultdict(lambda: NOTHING))
    """UUID -> the used part of the device."""
    instances: defaultdict[str, list[MigPlacement]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """UUID -> the places of its MIG instances."""

    def add(self, devices: Mapping[str, Holding], mig: tuple[MigAllocation, ...]) -> None:
        """Add the holding of a pod."""
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

    def joined(self, other: "Tally") -> "Tally":
        """Return the larger use of each device, with the places of both."""
        both = self.copy()
        for uuid, holding in other.used.items():
            both.used[uuid] = both.used[uuid].most(holding)
        for uuid, placements in other.instances.items():
            both.instances[uuid] += [
                each for each in placements if each not in both.instances[uuid]
            ]
        return both

    def copy(self) -> "Tally":
        """Return an independent copy."""
        copied = Tally()  # holdings are immutable, lists of places are not
        copied.used.update(self.used)
        for uuid, placements in self.instances.items():
            copied.instances[uuid] = list(placements)
        return copied


@dataclass
class NodeUsage:
    """The usage of a node now, and after all releasing pods have gone.

    `now` has the pods on the node, also releasing ones. `later` has no releasing pods, but those
    with a promise.
    """

    now: Tally = field(default_factory=Tally)
    later: Tally = field(default_factory=Tally)
    promise_count: int = 0
    """Number of pods with a promise."""

    def hold(self, held: HeldDevices) -> None:
        """Add a pod that stays."""
        self.now.add(held.devices, held.mig)
        self.later.add(held.devices, held.mig)

    def let_go(self, held: HeldDevices) -> None:
        """Undo `hold`."""
        self.now.take_back(held.devices, held.mig)
        self.later.take_back(held.devices, held.mig)

    def promise(self, held: HeldDevices) -> None:
        """Add a pod that waits for releasing pods."""
        self.later.add(held.devices, held.mig)
        self.promise_count += 1

    def break_promise(self, held: HeldDevices) -> None:
        """Undo `promise`."""
        self.later.take_back(held.devices, held.mig)
        self.promise_count -= 1

    def release(self, held: HeldDevices) -> None:
        """Note that a pod on the node is being released."""
        self.later.take_back(held.devices, held.mig)

    def keep(self, held: HeldDevices) -> None:
        """Undo `release`."""
        self.later.add(held.devices, held.mig)
