"""Whether a pod fits onto a node's devices, and which it gets: HAMi's checks in HAMi's order.

Called by `ledger` for every node that is looked at and every pod that is planned. Pure: it reads
the tally of a node and changes a copy, container by container. Init containers that end before the
others begin each start from what the node has without this pod.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bindery.api.hami import poddevices
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.names import DeviceModeWord
from bindery.api.hami.nodedevices import MigPlacement, NodeDevice
from bindery.api.hami.poddevices import ContainerDevice, Holding, Slot
from bindery.api.hami.requests import DeviceRequest, PodRequest
from bindery.api.hami.vendor import Vendor
from bindery.api.hami.vendortable import BY_WORD
from bindery.api.hami.wishes import DevicePolicy, Wishes
from bindery.scheduler.plugins.node_lock import checks, groups, order
from bindery.scheduler.plugins.node_lock.amounts import amounts
from bindery.scheduler.plugins.node_lock.checks import Demand
from bindery.scheduler.plugins.node_lock.fleet import HamiNode, Held
from bindery.scheduler.plugins.node_lock.reasons import (
    CARD_USED_BY_JOB,
    NODE_INSUFFICIENT_DEVICE,
    Reasons,
)
from bindery.scheduler.plugins.node_lock.usage import Tally


@dataclass(frozen=True)
class ShapeRequest:
    """What a pod wants: made once a shape."""

    request: PodRequest
    wishes: Wishes


@dataclass
class Fitting:
    """A pod being fitted onto one node."""

    node: HamiNode
    pod: ShapeRequest
    policies: Sequence[DevicePolicy]
    """What the pod wishes, or the default."""
    tally: Tally
    """What is taken without this pod; containers are added as they are placed."""
    avoided: Collection[str] = ()
    """UUIDs of devices on which pods of its job stand, where the job wants them apart."""
    reasons: Reasons = field(default_factory=Reasons)
    """What is against devices for the request that was looked at last."""
    _slots: dict[str, list[Slot]] = field(default_factory=dict)
    _mig: list[MigAllocation] = field(default_factory=list)

    def run(self) -> Assignment | None:
        """Return the devices of all containers; None if they do not fit, and `reasons` why."""
        request = self.pod.request
        self._slots = {vendor.word: [] for vendor in request.vendors}
        before = self.tally
        # Those that run together are placed first to keep the slots' order out of the sums.
        running = before.copy()
        for index, asked in enumerate(request.slots):
            self.tally = before.copy() if index in request.passing else running
            if not self._place_container(index, asked):
                return None
        slots = {word: tuple(found) for word, found in self._slots.items()}
        return Assignment(slots, self._indexes(), tuple(self._mig))

    def _place_container(self, index: int, asked: Sequence[DeviceRequest]) -> bool:
        for found in self._slots.values():
            found.append(())
        for request in asked:
            slot = self._place(index, request)
            if slot is None:
                return False
            self._slots[request.vendor.word][index] = slot
        return True

    def _place(self, index: int, request: DeviceRequest) -> Slot | None:
        """Return the devices for one request, and count them; None if there are too few."""
        vendor = request.vendor
        devices = self.node.devices.get(vendor.word, ())
        wanted = 1 if vendor.count_is_shares else request.count
        if len(devices) < wanted and not self._may_cut(devices):
            self.reasons = Reasons.of_node(NODE_INSUFFICIENT_DEVICE)
            return None
        self.reasons = Reasons(len(devices))
        fitting = [device for device in devices if self._fits(device, request)]
        chosen = self._choose(fitting, request, wanted)
        if chosen is None:
            if fitting:
                self.reasons.add("AllocatedCardsInsufficientRequest", len(fitting))
            return None
        return tuple(self._take(device, request, index, at) for at, device in enumerate(chosen))

    def _may_cut(self, devices: Sequence[NodeDevice]) -> bool:
        """Whether one of the devices can be cut into several instances for the pod."""
        mig, modes = DeviceModeWord.MIG.value, self.pod.wishes.modes
        return (not modes or mig in modes) and any(device.mode == mig for device in devices)

    def _fits(self, device: NodeDevice, request: DeviceRequest) -> bool:
        """Return whether one device can be taken; note why not."""
        wishes, used = self.pod.wishes, self.tally.used[device.id]
        why = checks.standing(device, self.node, request.vendor, wishes)
        if not why and self._is_elsewhere(device, request.vendor):
            why = "CardNotFoundCustomFilterRule"
        if not why and device.id in self.avoided:
            why = CARD_USED_BY_JOB
        if not why and DevicePolicy.MUTEX in self.policies and used.shares:
            why = "ExclusiveDeviceAllocateConflict"
        why = why or checks.room(device, used, self._demand(device, request), request)
        if not why and device.mode == DeviceModeWord.MIG:
            why = "" if self._instance(device, request) else "CardMigTopologyInfeasible"
        if why:
            self.reasons.add(why)
        return not why

    def _is_elsewhere(self, device: NodeDevice, vendor: Vendor) -> bool:
        """Whether the pod's other containers have another device, and all must share one."""
        if not vendor.has_one_device_a_pod:
            return False
        others = {each.device for slot in self._slots[vendor.word] for each in slot}
        return bool(others) and device.id not in others

    def _choose(
        self, fitting: Sequence[NodeDevice], request: DeviceRequest, wanted: int
    ) -> list[NodeDevice] | None:
        """Return which of the fitting devices are taken; None if they are too few."""
        scores = {
            device.id: order.device_score(
                device,
                self.tally.used[device.id],
                self._demand(device, request).holding,
                self.pod.wishes.weights,
            )
            for device in fitting
        }
        by_numa = self.pod.wishes.binds_numa
        ordered = order.in_order(fitting, scores, self.policies, by_numa=by_numa)
        for together in groups.by_numa(ordered) if by_numa else (ordered,):
            chosen = self._choose_together(together, request, wanted)
            if chosen is not None:
                return chosen
        if fitting and (by_numa or groups.are_linked(wanted, request.vendor)):
            self.reasons.add("NumaNotFit", len(fitting))
        return None

    def _choose_together(
        self, ordered: Sequence[NodeDevice], request: DeviceRequest, wanted: int
    ) -> list[NodeDevice] | None:
        """Return `wanted` devices of `ordered` by the vendor's links, by the links that the node
        has measured where the pod wants that, else in their order; None if there are none.
        """
        if groups.are_linked(wanted, request.vendor):
            return groups.linked(ordered, wanted, request.vendor)
        if DevicePolicy.TOPOLOGY in self.policies and len(ordered) >= wanted:
            return order.best_linked(ordered, wanted, self.node.pair_scores)
        return self._repeated(ordered, request, wanted)

    def _repeated(
        self, ordered: Sequence[NodeDevice], request: DeviceRequest, wanted: int
    ) -> list[NodeDevice] | None:
        """Return the first `wanted`, cards that are cut into instances as often as they can be."""
        if len(ordered) >= wanted:
            return list(ordered[:wanted])
        chosen: list[NodeDevice] = []
        for device in ordered:
            copies = self._instances(device, request, wanted - len(chosen))
            chosen += [device] * copies
        return chosen if len(chosen) >= wanted else None

    def _instances(self, device: NodeDevice, request: DeviceRequest, most: int) -> int:
        """Return how many instances for `request` the card still has, `most` at the most."""
        if device.mode != DeviceModeWord.MIG:
            return min(most, 1)
        taken = list(self.tally.instances[device.id])
        count = 0
        while count < most and (found := self._instance(device, request, taken)) is not None:
            taken.append(found[1])
            count += 1
        return count

    # ---- one device -----------------------------------------------------------------------------

    def _demand(self, device: NodeDevice, request: DeviceRequest) -> Demand:
        return checks.demand(device, request, self.tally.used[device.id])

    def _instance(
        self,
        device: NodeDevice,
        request: DeviceRequest,
        taken: Sequence[MigPlacement] | None = None,
    ) -> checks.Instance | None:
        used = self.tally.instances[device.id] if taken is None else taken
        memory_mib = self._demand(device, request).holding.memory_mib
        return checks.instance(device, memory_mib, used, self.pod.wishes.mig_profiles)

    def _take(
        self, device: NodeDevice, request: DeviceRequest, slot: int, at: int
    ) -> ContainerDevice:
        """Count the device as used and return what is written of it."""
        demand = self._demand(device, request).holding
        mig: tuple[MigAllocation, ...] = ()
        if device.mode == DeviceModeWord.MIG:
            found = self._instance(device, request)
            assert found is not None, "a card is chosen as often as it has instances"
            profile, place = found
            demand = Holding(1, profile.memory_mib, profile.cores)
            mig = (
                MigAllocation(
                    container_index=slot,
                    device_index=at,
                    gpu_uuid=device.id,
                    profile=profile.name,
                    placement=place,
                ),
            )
            self._mig += mig
        self.tally.add({device.id: demand}, mig)
        vendor = request.vendor
        kind = device.type if vendor.type_is_model else vendor.word
        return ContainerDevice(device.id, kind, demand.memory_mib, demand.cores)

    def _indexes(self) -> dict[str, int]:
        used = {each.device for slots in self._slots.values() for slot in slots for each in slot}
        return {
            device.id: device.index
            for devices in self.node.devices.values()
            for device in devices
            if device.id in used
        }


def held_by(assignment: Assignment, pod: ShapeRequest, node: str) -> Held:
    """Return what a pod with `assignment` holds on `node`."""
    devices: dict[str, Holding] = {}
    counted: dict[str, int] = {}
    for word, slots in assignment.devices.items():
        held = poddevices.collapse(slots, pod.request.passing)
        devices.update(held)
        counted |= amounts(BY_WORD[word], held.values())
    return Held(node, devices, assignment.mig, counted)
