"""Chooses devices of one node for a pod, with HAMi's checks in HAMi's order.

`ledger` calls it for every checked node and every planned pod. It changes a copy of the node's
tally, container by container. An init container that ends before the others begin starts from the
tally without this pod.
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
from bindery.scheduler.plugins.hami import checks, groups, order
from bindery.scheduler.plugins.hami.amounts import amounts
from bindery.scheduler.plugins.hami.checks import DeviceDemand
from bindery.scheduler.plugins.hami.fleet import HamiNode, HeldDevices
from bindery.scheduler.plugins.hami.reasons import (
    CARD_USED_BY_JOB,
    NODE_INSUFFICIENT_DEVICE,
    Reasons,
)
from bindery.scheduler.plugins.hami.usage import Tally


@dataclass(frozen=True)
class ShapeRequest:
    """The device request of pods of one shape."""

    request: PodRequest
    """Counts and sizes, from the resources of the containers."""
    wishes: Wishes
    """Further conditions, from annotations."""


@dataclass
class Fitting:
    """One attempt to place a pod on the devices of one node."""

    node: HamiNode
    pod: ShapeRequest
    policies: Sequence[DevicePolicy]
    """The order of devices: the pod's wish, or the default."""
    tally: Tally
    """The usage of the node without this pod; placed containers are added."""
    avoided: Collection[str] = ()
    """UUIDs of devices with other pods of the job, if the job spreads over devices."""
    reasons: Reasons = field(default_factory=Reasons)
    """The reasons against devices for the last request."""
    _slots: dict[str, list[Slot]] = field(default_factory=dict)
    _mig: list[MigAllocation] = field(default_factory=list)

    def run(self) -> Assignment | None:
        """Return the devices of all containers, or None; `reasons` then has the reasons."""
        request = self.pod.request
        self._slots = {vendor.word: [] for vendor in request.vendors}
        before = self.tally
        # Containers that run together share one tally. Each passing init container gets its own
        # copy, because its devices are free again when the others start.
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
        """Return the devices for one request and add them to the tally; None if too few fit."""
        vendor = request.vendor
        devices = self.node.devices.get(vendor.word, ())
        wanted = 1 if vendor.count_is_shares else request.count
        # HAMi checks no single device then, so there are no further reasons.
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
        """Return whether a device can be cut into several MIG instances for the pod."""
        mig, modes = DeviceModeWord.MIG.value, self.pod.wishes.modes
        return (not modes or mig in modes) and any(device.mode == mig for device in devices)

    def _fits(self, device: NodeDevice, request: DeviceRequest) -> bool:
        """Return whether a device fits; if not, add the reason."""
        wishes, used = self.pod.wishes, self.tally.used[device.id]
        # HAMi's order: the first reason is the one that users see.
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
        """Return whether other containers have another device, and the vendor allows only one."""
        if not vendor.has_one_device_a_pod:
            return False
        others = {each.device for slot in self._slots[vendor.word] for each in slot}
        return bool(others) and device.id not in others

    def _choose(
        self, fitting: Sequence[NodeDevice], request: DeviceRequest, wanted: int
    ) -> list[NodeDevice] | None:
        """Return `wanted` of the fitting devices; None if there are too few."""
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
        # With NUMA binding, all devices come from one NUMA node: the first with enough.
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
        """Return `wanted` devices of `ordered`, or None.

        They are chosen by the vendor's table of links, by the measured links of the node if the pod
        has the topology policy, or in their order.
        """
        if groups.are_linked(wanted, request.vendor):
            return groups.linked(ordered, wanted, request.vendor)
        if DevicePolicy.TOPOLOGY in self.policies and len(ordered) >= wanted:
            return order.best_linked(ordered, wanted, self.node.pair_scores)
        return self._repeated(ordered, request, wanted)

    def _repeated(
        self, ordered: Sequence[NodeDevice], request: DeviceRequest, wanted: int
    ) -> list[NodeDevice] | None:
        """Return the first `wanted` devices; a card in MIG mode can be chosen more than once."""
        if len(ordered) >= wanted:
            return list(ordered[:wanted])
        chosen: list[NodeDevice] = []
        for device in ordered:
            copies = self._instances(device, request, wanted - len(chosen))
            chosen += [device] * copies
        return chosen if len(chosen) >= wanted else None

    def _instances(self, device: NodeDevice, request: DeviceRequest, most: int) -> int:
        """Return how many instances for `request` fit on the card, up to `most`."""
        if device.mode != DeviceModeWord.MIG:
            return min(most, 1)
        taken = list(self.tally.instances[device.id])
        count = 0
        while count < most and (found := self._instance(device, request, taken)) is not None:
            taken.append(found[1])
            count += 1
        return count

    # ---- one device -----------------------------------------------------------------------------

    def _demand(self, device: NodeDevice, request: DeviceRequest) -> DeviceDemand:
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
        """Add the device to the tally and return its entry for HAMi's annotations."""
        demand = self._demand(device, request).holding
        mig: tuple[MigAllocation, ...] = ()
        if device.mode == DeviceModeWord.MIG:
            found = self._instance(device, request)
            assert found is not None, "a card is chosen as often as it has instances"
            profile, place = found
            # The pod holds the whole instance, which can be larger than the request.
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


def held_by(assignment: Assignment, pod: ShapeRequest, node: str) -> HeldDevices:
    """Return the holding of a pod with `assignment` on `node`."""
    devices: dict[str, Holding] = {}
    counted: dict[str, int] = {}
    for word, slots in assignment.devices.items():
        held = poddevices.collapse(slots, pod.request.passing)
        devices.update(held)
        counted |= amounts(BY_WORD[word], held.values())
    return HeldDevices(node, devices, assignment.mig, counted)
