"""GPUs that HAMi shares, as queues count them: in cards, while nodes count shares of cards.

Nodes and pods are read here for nodes.py and shapes.py: the model has no other module that knows
HAMi's protocol. A pod counts, for each of its cards, the larger of its part of the memory and its
part of the cores. Sums and quotas need this also when the plugin `hami` is not configured.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bindery.api import quantity
from bindery.api.hami import assignment, nodedevices, requests, wishes
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.requests import DeviceRequest
from bindery.api.hami.vendortable import MANAGED, NVIDIA, VENDORS
from bindery.api.names import GPU_RESOURCE, HAMI_REGISTER_ANNOTATION
from bindery.kube.objects.podspec import PodSpec
from bindery.kube.objects.watched import Node, Pod
from bindery.scheduler.model.resources import CardPart, CardParts, Request

ANNOTATIONS = wishes.keys(VENDORS)
"""The annotations by which a pod chooses cards."""
OWN_AMOUNTS = MANAGED
"""Resources that count amounts of a card, such as its memory and cores: nodes have no sums."""
_RESOURCES = MANAGED | {vendor.count_resource for vendor in VENDORS if vendor is not NVIDIA}
"""Resources of HAMi's protocol, without `nvidia.com/gpu`, which other device plugins also use."""


@dataclass(frozen=True, slots=True)
class SharedCards:
    """The cards of one node."""

    count: int
    memory_mib: int
    """Of the smallest card."""


def shared_cards(node: Node) -> SharedCards | None:
    """Return the GPUs of `node` that HAMi shares; None if it has none that can be read."""
    text = node.metadata.annotations.get(HAMI_REGISTER_ANNOTATION)
    if text is None:
        return None
    try:
        devices = nodedevices.decode(text)
    except HamiFormatError:  # the plugin `hami` reports it
        return None
    if not devices:
        return None
    return SharedCards(len(devices), max(1, min(device.memory_mib for device in devices)))


class CardTable:
    """The cards of all nodes, by node row."""

    def __init__(self) -> None:
        self._cards: dict[int, SharedCards] = {}
        self._largest_mib: int | None = 0
        """The memory of the largest card; None if it must be looked up again."""

    def put(self, row: int, cards: SharedCards | None) -> None:
        """Set the cards of the node at `row`; None removes them."""
        self._largest_mib = None
        if cards is not None:
            self._cards[row] = cards
        else:
            self._cards.pop(row, None)

    def all(self) -> Iterator[tuple[int, int]]:
        """Yield each row with cards, and the GPU units that its node offers to queues."""
        for row, cards in self._cards.items():
            yield row, cards.count * quantity.scale(GPU_RESOURCE)

    def charged(self, row: int, request: Request) -> int | None:
        """Return the GPU units that `request` counts at `row`; None if it counts its own amount."""
        cards = self._cards.get(row)
        if cards is None or request.part is None:
            return None
        return request.part.amount(cards.memory_mib)

    def least(self, request: Request) -> int | None:
        """Return the smallest GPU units that `request` can count; None as in `charged`."""
        if request.part is None:
            return None
        if self._largest_mib is None:
            self._largest_mib = max((each.memory_mib for each in self._cards.values()), default=0)
        return request.part.amount(self._largest_mib) if self._largest_mib else None


def requests_devices(spec: PodSpec) -> bool:
    """Return whether the pod requests resources that only HAMi's protocol has."""
    return not _RESOURCES.isdisjoint(_resource_names(spec))


def forged_annotation(pod: Pod) -> str:
    """Return the annotation that only a binder may write and an unbound `pod` has; "" for none."""
    meta = pod.metadata
    return "" if pod.spec.node_name else assignment.forged_key(meta.annotations, meta.uid)


def card_parts(spec: PodSpec) -> CardParts | None:
    """Return the pod's request for GPUs that HAMi shares; None if it has none.

    None also for a request that cannot be read: the plugin for such devices refuses the pod.
    """
    if OWN_AMOUNTS.isdisjoint(_resource_names(spec)):
        return None
    try:
        asked = requests.read_pod(
            [(c.resources, c.restart_policy == "Always") for c in spec.init_containers or ()],
            [c.resources for c in spec.containers],
        )
    except HamiFormatError:
        return None
    parts = [
        (index, CardPart(each.count, each.memory_mib, _portion(each)))
        for index, slot in enumerate(asked.slots if asked is not None else ())
        for each in slot
        if each.vendor is NVIDIA
    ]
    if asked is None or not parts:
        return None
    return CardParts(
        tuple(part for index, part in parts if index not in asked.passing),
        tuple(part for index, part in parts if index in asked.passing),
    )


def _portion(request: DeviceRequest) -> int:
    """Return the part of each device that is requested in percent, in milli devices."""
    percent = 0 if request.memory_mib else request.memory_percent
    return 10 * max(request.cores, percent)


def _resource_names(spec: PodSpec) -> set[str]:
    return {
        name
        for container in (*spec.containers, *(spec.init_containers or ()))
        if container.resources is not None
        for named in (container.resources.requests, container.resources.limits)
        for name in named or ()
    }
