"""Made-up pod addresses, each held by one pod at a time.

Used by `pods`. Addresses that pods already carry (from before a restart, or of other agents) are
reserved first, so no two living pods share one.
"""

from ipaddress import IPv4Address, IPv4Network
from typing import Final
from zlib import crc32

POD_ADDRESSES: Final = IPv4Network("100.64.0.0/10")
"""Four million addresses that no public network routes (RFC 6598)."""

_BLOCK: Final = 256
"""Offset between the start addresses of two nodes: more than the pods of a node."""


class NoAddressLeftError(Exception):
    """All addresses of the range are in use; an address becomes free when a pod is deleted."""


class AddressPool:
    """Hands out the addresses of `network` in turn, so that a released address is reused late.

    Each node starts at its own offset, so that agents that do not see each other's newest pods
    rarely choose the same address.
    """

    def __init__(self, network: IPv4Network = POD_ADDRESSES) -> None:
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._next: dict[str, int] = {}  # node -> offset of the address to try next
        self._owners: dict[str, str] = {}  # address -> pod uid
        self._addresses: dict[str, str] = {}  # pod uid -> address

    def reserve(self, uid: str, address: str) -> None:
        """Record that pod `uid` has `address`; of several pods with it, the first one holds it."""
        if self._addresses.get(uid) == address or address in self._owners:
            return
        self.release(uid)
        self._owners[address], self._addresses[uid] = uid, address

    def take(self, uid: str, node: str = "") -> str:
        """Return the address of a pod, else a free one; raises NoAddressLeftError without any."""
        if uid in self._addresses:
            return self._addresses[uid]
        if len(self._owners) >= self._count:
            raise NoAddressLeftError(f"all {self._count} pod addresses are held")
        while (address := self._advance(node)) in self._owners:
            pass
        self.reserve(uid, address)
        return address

    def release(self, uid: str) -> None:
        """Release the address of pod `uid`, if it has one."""
        address = self._addresses.pop(uid, None)
        if address is not None:
            del self._owners[address]

    def _advance(self, node: str) -> str:
        offset = self._next.get(node)
        if offset is None:
            offset = crc32(node.encode()) // _BLOCK * _BLOCK % self._count
        self._next[node] = (offset + 1) % self._count
        return str(IPv4Address(self._first + offset))
