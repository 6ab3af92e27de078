"""Chooses the container to which a call of the kubelet belongs. Pure.

The call names no pod: it has a number of shares, whose devices the kubelet has chosen. What the
kubelet reports shows which pods it has come to. Of these, the node's lock names the one that its
binder means; without a lock that helps, the UUIDs decide, which `preferred` makes equal to those of
the waiting container. Invariant: of two containers with
different devices or limits, none gets what the other was given; the call fails instead.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence

from bindery.api.hami.lock import NodeLock
from bindery.api.hami.poddevices import ContainerDevice, Slot
from bindery.nodeagent.devices.inventory import PodKey
from bindery.nodeagent.shares.pods import ContainerTurn


class NoTurnError(Exception):
    """The call belongs to no container, or to one of several; the text is for the kubelet."""


def in_admission(
    turns: Sequence[ContainerTurn], reported: Container[PodKey]
) -> list[ContainerTurn]:
    """Return the turns of pods that the kubelet reports; all turns if it reports none of them.

    The kubelet admits one pod after the other, and reports a pod from its admission on. After a
    restart it comes to pods again that had their devices before, while the lock is already held
    for a later pod. A kubelet that reports none of the pods cannot be asked.
    """
    found = [turn for turn in turns if turn.pod.key in reported]
    return found or list(turns)


def choose(
    turns: Iterable[ContainerTurn], lock: NodeLock | None, uuids: Sequence[str]
) -> ContainerTurn:
    """Return the turn that the call with the devices `uuids` belongs to.

    Raises:
        NoTurnError: there is none, or there are several that differ.
    """
    fitting = [turn for turn in turns if len(turn.devices) == len(uuids)]
    locked = [turn for turn in fitting if lock is not None and lock.is_of(*turn.pod.key)]
    if locked:
        return locked[0]
    asked = Counter(uuids)
    exact = [turn for turn in fitting if _uuids(turn.devices) == asked]
    return _one_of(exact or fitting, len(uuids))


def _one_of(turns: Sequence[ContainerTurn], count: int) -> ContainerTurn:
    """Return the first of turns with equal devices and limits, by the time of their binding."""
    if not turns:
        raise NoTurnError(f"no pod of this node waits for {count} GPU shares")
    if len({tuple(sorted(map(_wanted, turn.devices))) for turn in turns}) > 1:
        found = ", ".join(sorted("/".join(turn.pod.key) for turn in turns))
        raise NoTurnError(f"{count} GPU shares may be meant for each of the pods {found}")
    return min(turns, key=lambda turn: (turn.since, turn.pod.key))


def preferred(
    turn: ContainerTurn | None, available: Collection[str], required: Sequence[str], size: int
) -> list[str]:
    """Return the shares to choose of `available`: first those of the devices of `turn`.

    So the kubelet's own records name the devices that the container really uses.
    """
    chosen = list(required)
    wanted = Counter(device.device for device in turn.devices) if turn is not None else Counter()
    wanted.subtract(uuid_of(share) for share in required)
    for share in sorted(available):
        if share not in chosen and len(chosen) < size and wanted[uuid_of(share)] > 0:
            wanted[uuid_of(share)] -= 1
            chosen.append(share)
    rest = (share for share in sorted(available) if share not in chosen)
    return [*chosen, *rest][:size]


def shares(uuid: str, count: int) -> list[str]:
    """Return the identifiers of the shares of a device, as HAMi's plugin names them."""
    return [f"{uuid}-{number}" for number in range(count)]


def uuid_of(share: str) -> str:
    """Return the device of a share."""
    return share.rpartition("-")[0]


def _uuids(devices: Slot) -> Counter[str]:
    return Counter(device.device for device in devices)


def _wanted(device: ContainerDevice) -> tuple[str, int, int]:
    return device.uuid, device.memory_mib, device.cores
