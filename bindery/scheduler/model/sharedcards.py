"""GPUs that HAMi shares, as queues count them: in cards, while nodes count shares of cards.

Written by nodes.py from the nodes' register annotations. A pod counts, for each of its cards, the
larger of its part of the memory and its part of the cores.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bindery.api import quantity
from bindery.api.hami import nodedevices
from bindery.api.hami.errors import HamiFormatError
from bindery.api.names import GPU_RESOURCE, HAMI_REGISTER_ANNOTATION
from bindery.kube.objects.watched import Node
from bindery.scheduler.model.resources import Request


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
