"""HAMi's devices of nodes, and the holdings of pods, from annotations only.

The plugin reports every node and pod, between cycles. A restart loses nothing: the binder records
the devices of its pods in annotations, and other pods have HAMi's. With invalid annotations, a node
has no such devices but a problem, and a pod holds nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bindery.api import quantity
from bindery.api.hami import assignment as assignments
from bindery.api.hami import migallocations, names, nodedevices, poddevices, requests
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import Holding
from bindery.api.hami.vendor import Capacity, Register, Vendor
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.watched import Node, Pod
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.plugins.hami.amounts import Amounts, amounts


@dataclass(frozen=True)
class HamiNode:
    """The devices of one node."""

    devices: Mapping[str, tuple[NodeDevice, ...]]
    """Vendor's word -> registered devices."""
    cordoned: frozenset[str] = frozenset()
    """UUIDs of cordoned devices."""
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """UUID -> UUID -> score of their link."""
    problems: tuple[str, ...] = ()
    """The errors in its annotations."""


@dataclass(frozen=True)
class HeldDevices:
    """The devices of one bound or planned pod."""

    node: str
    devices: Mapping[str, Holding]
    """UUID -> held part of the device."""
    mig: tuple[MigAllocation, ...] = ()
    amounts: Amounts = field(default_factory=dict)
    """The amounts that count against the quota of its namespace."""
    is_recorded: bool = True
    """Whether the binder's record has the devices, and not only HAMi's annotations."""


class Fleet:
    """The nodes with such devices, and the pods that hold some."""

    def __init__(self, vendors: tuple[Vendor, ...]) -> None:
        self._vendors = vendors
        self.nodes: dict[str, HamiNode] = {}
        """Node name -> devices, also for nodes with invalid annotations."""
        self.held: dict[Uid, HeldDevices] = {}
        """UID of a bound pod -> its devices."""
        self._on_node: defaultdict[str, set[Uid]] = defaultdict(set)

    def put_node(self, node: Node) -> bool:
        """Add or update a node; return whether its devices changed."""
        name = node.metadata.name
        found = read_node(node, self._vendors)
        # Nodes change with every heartbeat; only changed devices make cached filters stale.
        if found == self.nodes.get(name):
            return False
        if found is None:
            del self.nodes[name]
        else:
            self.nodes[name] = found
        return True

    def drop_node(self, name: str) -> bool:
        """Remove a node; return whether it had devices."""
        return self.nodes.pop(name, None) is not None

    def put_pod(self, pod: Pod) -> None:
        """Add or update a pod; it holds its devices from the binding until it has ended.

        The devices at the first sight of the bound pod count. HAMi's protocol never changes them,
        so later changes of the annotations are ignored.
        """
        uid = Uid(pod.metadata.uid)
        before = self.held.get(uid)
        self.drop_pod(uid)
        if not pod.spec.node_name or pod.status.phase in ENDED_POD_PHASES:
            return
        held = before or read_held(pod, self._vendors)
        if held is not None:
            self.held[uid] = held
            self._on_node[held.node].add(uid)

    def drop_pod(self, uid: Uid) -> None:
        """Remove a pod."""
        held = self.held.pop(uid, None)
        if held is not None:
            self._on_node[held.node].discard(uid)

    def on_node(self, name: str) -> Iterator[tuple[Uid, HeldDevices]]:
        """Yield the bound pods on a node with their devices."""
        for uid in sorted(self._on_node.get(name, ())):
            yield uid, self.held[uid]


def read_node(node: Node, vendors: tuple[Vendor, ...]) -> HamiNode | None:
    """Return the devices of `node`; None without devices and without invalid annotations."""
    annotations, problems = node.metadata.annotations, []
    devices: dict[str, tuple[NodeDevice, ...]] = {}
    for vendor in vendors:
        try:
            found = _devices(node, vendor)
        except (HamiFormatError, quantity.QuantityError) as error:
            # Devices of other vendors on the node stay usable.
            problems.append(f"{vendor.register_key or vendor.word}: {error}")
            continue
        if found:
            devices[vendor.word] = found
    if not devices and not problems:
        return None
    pairs: Mapping[str, Mapping[str, int]] = {}
    try:
        text = annotations.get(names.NVIDIA_PAIR_SCORES)
        pairs = nodedevices.decode_pair_scores(text) if text else {}
    except HamiFormatError as error:
        problems.append(f"{names.NVIDIA_PAIR_SCORES}: {error}")
    cordoned = nodedevices.decode_cordon(annotations.get(names.CORDONED_DEVICES, ""))
    return HamiNode(devices, cordoned, pairs, tuple(problems))


def _devices(node: Node, vendor: Vendor) -> tuple[NodeDevice, ...]:
    if vendor.capacity is not None:
        return _from_capacity(node, vendor, vendor.capacity)
    text = node.metadata.annotations.get(vendor.register_key)
    if text is None:
        return ()
    # Two vendors have formats of their own.
    if vendor.register is Register.METAX:
        return nodedevices.decode_metax(text, vendor.word)
    if vendor.register is Register.DRS:
        return nodedevices.decode_drs(text, node.metadata.name, vendor.word)
    return nodedevices.decode(text)


def _from_capacity(node: Node, vendor: Vendor, rule: Capacity) -> tuple[NodeDevice, ...]:
    offered = _offered(node)
    amount = offered(rule.resource)
    count = -(-amount // rule.per_device)  # rounded up
    memory_mib = rule.memory_mib
    if rule.memory_resource and count:
        total_mib = offered(rule.memory_resource) * vendor.memory_unit_mib
        memory_mib = total_mib * rule.per_device // amount
    cores = rule.cores
    if rule.cores_mask_resource and count:
        cores = (1 << offered(rule.cores_mask_resource) // count) - 1
    return tuple(
        NodeDevice(
            id=f"{node.metadata.name}-{rule.id_part}-{index}",
            index=index,
            count=rule.shares,
            memory_mib=memory_mib,
            cores=cores,
            type=vendor.word,
            numa=int(rule.has_two_halves and index >= count // 2),
            healthy=True,
        )
        for index in range(count)
    )


def _offered(node: Node) -> Callable[[str], int]:
    allocatable = node.status.allocatable or {}

    def whole(resource: str) -> int:
        amount = quantity.parse(allocatable.get(resource, "0"), resource)
        return max(0, amount // quantity.scale(resource))

    return whole


def read_held(pod: Pod, vendors: tuple[Vendor, ...]) -> HeldDevices | None:
    """Return the devices of a bound pod, by the binder's record or by HAMi's annotations.

    None if it holds nothing. Annotations that are invalid, do not match the requests of the
    containers, or name another node count for nothing: a device plugin could not use them either.
    """
    annotations = pod.metadata.annotations
    record = assignments.read_record(annotations, pod.metadata.uid)
    try:
        node, assigned = record or _annotated(annotations, vendors)
        requested = requests.read_pod(
            [(c.resources, c.restart_policy == "Always") for c in pod.spec.init_containers or ()],
            [c.resources for c in pod.spec.containers],
        )
    except HamiFormatError:
        return None
    if requested is None or node not in ("", pod.spec.node_name):
        return None
    devices: dict[str, Holding] = {}
    counted: dict[str, int] = {}
    for vendor in vendors:
        if vendor.word in assigned.devices:
            slots, counts = assigned.devices[vendor.word], requested.counts(vendor)
            try:
                aligned = poddevices.align(slots, counts)
            except HamiFormatError:
                continue
            held = poddevices.collapse(aligned, requested.passing)
            devices.update(held)
            counted |= amounts(vendor, held.values())
    if not devices:
        return None
    return HeldDevices(pod.spec.node_name, devices, assigned.mig, counted, record is not None)


def _annotated(
    annotations: Mapping[str, str], vendors: tuple[Vendor, ...]
) -> tuple[str, Assignment]:
    """Return node and devices in HAMi's annotations; vendors with invalid ones are left out."""
    devices = {}
    for vendor in vendors:
        # Invalid annotations of one vendor must not hide the devices of the others.
        if vendor.allocated_key in annotations:
            try:
                devices[vendor.word] = poddevices.decode(annotations[vendor.allocated_key])
            except HamiFormatError:
                continue
    mig = migallocations.decode(annotations.get(names.MIG_ALLOCATIONS, ""))
    return annotations.get(names.ASSIGNED_NODE, ""), Assignment(devices, mig=mig)
