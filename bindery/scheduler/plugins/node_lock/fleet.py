"""What nodes have of HAMi's devices and what pods hold of them, read from annotations alone.

Told of every node and pod by the plugin, between cycles only; after a restart the annotations of
bound pods say all there is to know: the binder's record of its pods, HAMi's keys of others.
Annotations that cannot be read count for nothing: their node offers none of those devices and says
why, and a pod holds none.
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
from bindery.kube.objects import Node, Pod
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.plugins.node_lock.amounts import Amounts, amounts


@dataclass(frozen=True)
class HamiNode:
    """The devices of one node."""

    devices: Mapping[str, tuple[NodeDevice, ...]]
    """Vendor's word -> its cards, as they are registered."""
    cordoned: frozenset[str] = frozenset()
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What of its annotations cannot be read."""


@dataclass(frozen=True)
class Held:
    """What one pod holds on its node, or is about to."""

    node: str
    devices: Mapping[str, Holding]
    """UUID -> how much of it."""
    mig: tuple[MigAllocation, ...] = ()
    amounts: Amounts = field(default_factory=dict)
    """What it counts for against its namespace's quota."""
    is_recorded: bool = True
    """Whether the binder says so, and not HAMi's annotations alone."""


class Fleet:
    """All nodes and bound pods, as far as these devices are concerned."""

    def __init__(self, vendors: tuple[Vendor, ...]) -> None:
        self._vendors = vendors
        self.nodes: dict[str, HamiNode] = {}
        """Those that have such devices, or say so in vain."""
        self.held: dict[Uid, Held] = {}
        """Bound pods by UID."""
        self._on_node: defaultdict[str, set[Uid]] = defaultdict(set)

    def put_node(self, node: Node) -> bool:
        """Take in a node; return whether its devices have changed."""
        name = node.metadata.name
        found = read_node(node, self._vendors)
        if found == self.nodes.get(name):
            return False
        if found is None:
            del self.nodes[name]
        else:
            self.nodes[name] = found
        return True

    def drop_node(self, name: str) -> bool:
        """Forget a node; return whether it had devices."""
        return self.nodes.pop(name, None) is not None

    def put_pod(self, pod: Pod) -> None:
        """Take in a pod: what it holds once it is bound and until it has ended.

        Its devices are those with which it was seen bound first: the protocol never rewrites them,
        so whoever does has nothing to say.
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
        """Forget a pod."""
        held = self.held.pop(uid, None)
        if held is not None:
            self._on_node[held.node].discard(uid)

    def on_node(self, name: str) -> Iterator[tuple[Uid, Held]]:
        """Yield the bound pods on a node and what they hold."""
        for uid in sorted(self._on_node.get(name, ())):
            yield uid, self.held[uid]


def read_node(node: Node, vendors: tuple[Vendor, ...]) -> HamiNode | None:
    """Return the devices of `node`; None if it has none and does not say that it has."""
    annotations, problems = node.metadata.annotations, []
    devices: dict[str, tuple[NodeDevice, ...]] = {}
    for vendor in vendors:
        try:
            found = _devices(node, vendor)
        except (HamiFormatError, quantity.QuantityError) as error:
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
    if vendor.register is Register.METAX:
        return nodedevices.decode_metax(text, vendor.word)
    if vendor.register is Register.DRS:
        return nodedevices.decode_drs(text, node.metadata.name, vendor.word)
    return nodedevices.decode(text)


def _from_capacity(node: Node, vendor: Vendor, rule: Capacity) -> tuple[NodeDevice, ...]:
    offered = _offered(node)
    amount = offered(rule.resource)
    count = -(-amount // rule.per_device)
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


def read_held(pod: Pod, vendors: tuple[Vendor, ...]) -> Held | None:
    """Return what a bound pod holds: by the binder's record, else by HAMi's annotations; None if
    nothing.

    What cannot be read, or does not match what its containers ask for, is nothing: a device plugin
    could not read it either. Nothing is held on a node other than the one that it says.
    """
    annotations = pod.metadata.annotations
    record = assignments.read_record(annotations, pod.metadata.uid)
    try:
        node, said = record or _said(annotations, vendors)
        asked = requests.read_pod(
            [(c.resources, c.restart_policy == "Always") for c in pod.spec.init_containers or ()],
            [c.resources for c in pod.spec.containers],
        )
    except HamiFormatError:
        return None
    if asked is None or node not in ("", pod.spec.node_name):
        return None
    devices: dict[str, Holding] = {}
    counted: dict[str, int] = {}
    for vendor in vendors:
        if vendor.word in said.devices:
            try:
                aligned = poddevices.align(said.devices[vendor.word], asked.counts(vendor))
            except HamiFormatError:
                continue
            held = poddevices.collapse(aligned, asked.passing)
            devices.update(held)
            counted |= amounts(vendor, held.values())
    if not devices:
        return None
    return Held(pod.spec.node_name, devices, said.mig, counted, record is not None)


def _said(annotations: Mapping[str, str], vendors: tuple[Vendor, ...]) -> tuple[str, Assignment]:
    """Return the node and the devices that HAMi's annotations say, without those of vendors that
    cannot be read.
    """
    devices = {}
    for vendor in vendors:
        if vendor.allocated_key in annotations:
            try:
                devices[vendor.word] = poddevices.decode(annotations[vendor.allocated_key])
            except HamiFormatError:
                continue
    mig = migallocations.decode(annotations.get(names.MIG_ALLOCATIONS, ""))
    return annotations.get(names.ASSIGNED_NODE, ""), Assignment(devices, mig=mig)
