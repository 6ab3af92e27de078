"""Packs waiting shares of GPUs into whole GPUs, for scaling pods. Pure.

First fit, in the order of the gangs: the first shares keep their packs when others come.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bindery.api.gpushare import WHOLE

Amounts = Mapping[int, int]
"""Position on the resource axis -> units, without GPUs."""


@dataclass(frozen=True)
class ShareWant:
    """The request of one waiting pod for parts of GPUs."""

    uid: str
    job: Hashable
    kind: Hashable
    """Key of the constraints on nodes; only pods of one kind are packed together."""
    portion: int
    """Of each device, in units of which `WHOLE` make one; at most `WHOLE`."""
    devices: int
    amounts: Amounts
    spreads: bool = False
    """Whether the pod must not share a device with another pod of its job."""
    stays_alone: bool = False
    """Whether the pod is not packed with others, because of rules that packing does not know."""

    @property
    def signature(self) -> Hashable:
        """Key that is equal for requests that fit equally well into packs of other jobs."""
        amounts = tuple(sorted(self.amounts.items()))
        return self.kind, self.portion, self.devices, amounts, self.spreads, self.stays_alone


@dataclass
class Pack:
    """Pods that fit together on some GPUs of one node."""

    kind: Hashable
    free: list[int]
    """The free portion of each GPU."""
    jobs: list[Counter[Hashable]]
    """For each GPU: job -> number of its pods on it."""
    amounts: dict[int, int]
    """The sum of the requests beside GPUs, reservation pods included."""
    wants: list[ShareWant] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        """Number of its GPUs."""
        return len(self.free)


Fits = Callable[[Hashable, int, Amounts], bool]
"""Returns whether an empty node for pods of a kind has this number of GPUs and these amounts."""


@dataclass
class Packing:
    """Packs gangs one after another."""

    most_gpus: int
    overhead: Amounts
    """The request of one reservation pod beside its GPU; each GPU needs one."""
    fits: Fits
    packs: list[Pack] = field(default_factory=list)
    _refused: set[Hashable] = field(default_factory=set)
    """Gangs that found no room. Packs only fill up, so an equal gang finds none either."""

    @property
    def gpus(self) -> int:
        """Number of GPUs of all packs."""
        return sum(pack.gpus for pack in self.packs)

    def add(self, gang: Sequence[ShareWant]) -> bool:
        """Pack all of `gang`, or nothing of it; return whether the limit had room for it."""
        signature = tuple(want.signature for want in gang)
        if signature in self._refused:
            return False
        done: list[tuple[int, ShareWant, list[int]]] = []
        for want in gang:
            done.append(self._place(want))
            if self.gpus > self.most_gpus:
                for index, placed, devices in reversed(done):
                    self._take_back(index, placed, devices)
                self._refused.add(signature)
                return False
        return True

    def _place(self, want: ShareWant) -> tuple[int, ShareWant, list[int]]:
        fitting = ((index, self._devices(each, want)) for index, each in enumerate(self.packs))
        found = next(((index, devices) for index, devices in fitting if devices), None)
        index, devices = found or (len(self.packs), list(range(want.devices)))
        if found is None:
            amounts = {at: amount * want.devices for at, amount in self.overhead.items()}
            free: list[int] = [WHOLE] * want.devices
            self.packs.append(Pack(want.kind, free, [Counter() for _ in free], amounts))
        pack = self.packs[index]
        for device in devices:
            pack.free[device] -= want.portion
            pack.jobs[device][want.job] += 1
        pack.amounts = _sum(pack.amounts, want.amounts, 1)
        pack.wants.append(want)
        return index, want, devices

    def _devices(self, pack: Pack, want: ShareWant) -> list[int]:
        """Return the GPUs of `pack` for `want`; empty if it does not fit."""
        if pack.kind != want.kind or want.stays_alone or pack.wants[0].stays_alone:
            return []
        devices = [
            device
            for device, free in enumerate(pack.free)
            if free >= want.portion and not (want.spreads and pack.jobs[device][want.job])
        ]
        if len(devices) < want.devices:
            return []
        together = _sum(pack.amounts, want.amounts, 1)
        return devices[: want.devices] if self.fits(pack.kind, pack.gpus, together) else []

    def _take_back(self, index: int, want: ShareWant, devices: Sequence[int]) -> None:
        pack = self.packs[index]
        pack.wants.pop()
        if not pack.wants:
            self.packs.pop()  # it was the last one, as it was made for `want`
            return
        pack.amounts = _sum(pack.amounts, want.amounts, -1)
        for device in devices:
            pack.free[device] += want.portion
            pack.jobs[device][want.job] -= 1


def pack(
    gangs: Iterable[Sequence[ShareWant]], most_gpus: int, overhead: Amounts, fits: Fits
) -> list[Pack]:
    """Return packs for `gangs`, the first ones first; gangs above the limit are left out whole."""
    packing = Packing(most_gpus, overhead, fits)
    for gang in gangs:
        packing.add(gang)
    return packing.packs


def _sum(one: Amounts, other: Amounts, sign: int) -> dict[int, int]:
    found = dict(one)
    for at, amount in other.items():
        found[at] = found.get(at, 0) + sign * amount
    return {at: amount for at, amount in found.items() if amount}
