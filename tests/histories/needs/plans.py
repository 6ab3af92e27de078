"""What the gangs of a history need beside cores and GPUs, drawn from its seed. Pure data.

Each need has a generator of its own, so that it leaves the chance of everything else as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

_LIKELIHOOD: Final = 0.25
"""Of each need, in a history."""
_NEVER_S: Final = 100_000.0
_LAST_S: Final = 80.0
"""Gangs come, and troubles begin, before."""


class VolumeSource(StrEnum):
    """Where the volume of a claim comes from."""

    PROVISIONED = "provisioned"
    LOCAL = "local"


@dataclass(frozen=True)
class VolumeNeed:
    """Each pod has a claim of its own, or all pods of the gang share one."""

    source: VolumeSource
    is_shared: bool
    is_ephemeral: bool
    """Whether Kubernetes makes the claim for the pod."""


class DeviceSource(StrEnum):
    """How a pod asks for devices."""

    TEMPLATE = "template"
    """Kubernetes makes a claim for each pod."""
    SHARED = "shared"
    """All pods of the gang name one claim."""
    EXTENDED = "extended"
    """The container asks for the extended resource of the class."""


@dataclass(frozen=True)
class DeviceNeed:
    """Devices of a DeviceClass."""

    source: DeviceSource
    count: int


@dataclass(frozen=True)
class CardNeed:
    """A part of one of HAMi's cards."""

    memory_mib: int


@dataclass(frozen=True)
class StageNeed:
    """Workers that are created when the pods of the gang, its leaders, have come so far."""

    workers: int
    worker_cores: int
    condition: str
    delay_s: float
    """After the condition, until the workers are created."""
    timeout_s: float
    """How long their room is kept."""


@dataclass(frozen=True)
class Needs:
    """What each pod of a gang needs."""

    volume: VolumeNeed | None = None
    device: DeviceNeed | None = None
    card: CardNeed | None = None
    stage: StageNeed | None = None
    is_in_rack: bool = False
    is_exclusive: bool = False
    """Whether the rack is for this gang alone."""


@dataclass(frozen=True)
class NeedyGang:
    """A gang as it is submitted."""

    name: str
    size: int
    minimum: int
    queue: str
    cores: int
    run_s: float | None
    at_s: float
    is_job: bool
    needs: Needs


class TroubleKind(StrEnum):
    """What goes wrong with those who answer the needs."""

    LOSE_VOLUME = "lose volume"
    """People remove a volume by force."""
    DELETE_CLAIM = "delete claim"
    """People delete a claim for a volume or for devices."""
    REFUSE_VOLUMES = "refuse volumes"
    """The provisioner has no room on a node."""
    STOP_PROVISIONER = "stop provisioner"
    WITHDRAW_DEVICES = "withdraw devices"
    """A node offers no devices."""
    SILENCE_CARDS = "silence cards"
    """HAMi's device plugin of a node hangs."""
    FAIL_ADMISSION = "fail admission"
    """The kubelet of a node with cards fails the pods that come, before the plugin sees them."""


@dataclass(frozen=True)
class Trouble:
    """One trouble with the object number `target`, from `at_s` on for `seconds`."""

    kind: TroubleKind
    target: int
    at_s: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind} {self.target} for {self.seconds:.3f} s"


@dataclass(frozen=True)
class Ground:
    """The cluster's means for the needs; none in a history without them."""

    has_volumes: bool = False
    local_volumes: tuple[int, ...] = ()
    """Number of the node of each volume that is there from the beginning."""
    devices: int = 0
    """Devices that each node offers to claims."""
    card_nodes: int = 0
    racks: int = 0


@dataclass(frozen=True)
class Drawn:
    """Everything that `draw` draws."""

    ground: Ground
    gangs: tuple[NeedyGang, ...]
    troubles: tuple[Trouble, ...]


def draw(seed: int) -> Drawn:
    """Draw the needs of the history of a seed."""
    volumes, devices, cards, stages = (
        Random(f"{name} {seed}") for name in ("volumes", "devices", "cards", "stages")
    )
    with_volumes = _gangs(volumes, "volume", _volume_need)
    with_devices = _gangs(devices, "device", _device_need)
    with_cards = _gangs(cards, "card", _card_need)
    with_stages = _gangs(stages, "stage", _stage_needs)
    gangs = (*with_volumes, *with_devices, *with_cards, *with_stages)
    has_volumes = any(gang.needs.volume is not None for gang in gangs)
    has_devices = any(gang.needs.device is not None for gang in gangs)
    troubles = (
        *_troubles(volumes, has_volumes, _VOLUME_TROUBLES),
        *_troubles(devices, has_devices, _DEVICE_TROUBLES),
        *_troubles(cards, bool(with_cards), _CARD_TROUBLES),
    )
    ground = Ground(
        has_volumes=has_volumes,
        local_volumes=tuple(volumes.randrange(5) for _ in range(4)) if has_volumes else (),
        devices=devices.randint(2, 3) if has_devices else 0,
        card_nodes=cards.choice((1, 1, 2)) if with_cards else 0,
        racks=2 if with_stages else 0,
    )
    return Drawn(ground, gangs, tuple(sorted(troubles, key=lambda each: each.at_s)))


_VOLUME_TROUBLES: Final = (
    TroubleKind.LOSE_VOLUME,
    TroubleKind.DELETE_CLAIM,
    TroubleKind.REFUSE_VOLUMES,
    TroubleKind.REFUSE_VOLUMES,
    TroubleKind.STOP_PROVISIONER,
)
_DEVICE_TROUBLES: Final = (TroubleKind.WITHDRAW_DEVICES, TroubleKind.DELETE_CLAIM)
_CARD_TROUBLES: Final = (TroubleKind.SILENCE_CARDS, TroubleKind.FAIL_ADMISSION)


def _gangs(
    chance: Random, name: str, draw_needs: Callable[[Random], Needs]
) -> tuple[NeedyGang, ...]:
    if chance.random() >= _LIKELIHOOD:
        return ()
    return tuple(
        _gang(chance, f"{name}{number}", draw_needs(chance))
        for number in range(chance.randint(1, 3))
    )


def _gang(chance: Random, name: str, needs: Needs) -> NeedyGang:
    has_both = needs.volume is not None and needs.device is not None
    # With two pods, one may have to be undone for the other, or waits for the other's lock.
    size = chance.randint(2 if has_both or needs.card is not None else 1, 3)
    is_ready_made = needs.volume is not None and not needs.volume.is_ephemeral
    is_shared = needs.device is not None and needs.device.source is DeviceSource.SHARED
    can_be_job = not is_ready_made and not is_shared and needs.stage is None
    return NeedyGang(
        name=name,
        size=size,
        minimum=chance.choice((size, chance.randint(1, size))),
        queue=chance.choice(("limited", "a", "b")),
        cores=chance.randint(1, 2),
        run_s=None if needs.stage is not None else chance.choice((None, chance.uniform(1, 40))),
        at_s=chance.choice((0.0, chance.uniform(0, 60))),
        is_job=can_be_job and not needs.is_in_rack and chance.random() < 0.3,
        needs=needs,
    )


def _volume_need(chance: Random) -> Needs:
    """Draw a volume, and often a device, which the binder undoes together."""
    device = _device_need(chance).device if chance.random() < 0.5 else None
    return Needs(volume=_volume(chance), device=device)


def _volume(chance: Random) -> VolumeNeed:
    is_ephemeral = chance.random() < 0.3
    source = chance.choice((VolumeSource.PROVISIONED, *VolumeSource))
    is_shared = not is_ephemeral and chance.random() < 0.3
    return VolumeNeed(source, is_shared, is_ephemeral)


def _device_need(chance: Random) -> Needs:
    return Needs(device=DeviceNeed(chance.choice(tuple(DeviceSource)), chance.choice((1, 1, 2))))


def _card_need(chance: Random) -> Needs:
    volume = VolumeNeed(VolumeSource.PROVISIONED, is_shared=False, is_ephemeral=False)
    return Needs(
        card=CardNeed(chance.choice((2000, 2500, 5000))),
        volume=volume if chance.random() < 0.4 else None,
    )


def _stage_needs(chance: Random) -> Needs:
    in_rack, is_exclusive = chance.random() < 0.5, chance.random() < 0.3
    stage = StageNeed(
        workers=chance.randint(1, 3),
        worker_cores=chance.randint(1, 2),
        condition=chance.choice(("Ready", "Bound", "Complete")),
        delay_s=chance.choice((chance.uniform(0, 2), chance.uniform(0, 40), _NEVER_S)),
        timeout_s=chance.choice((5.0, 20.0, 30.0)),
    )
    has_stage = not in_rack or chance.random() < 0.5
    return Needs(
        stage=stage if has_stage else None,
        is_in_rack=in_rack,
        is_exclusive=in_rack and is_exclusive,
    )


def _troubles(
    chance: Random, is_needed: bool, kinds: tuple[TroubleKind, ...]
) -> tuple[Trouble, ...]:
    if not is_needed:
        return ()
    return tuple(
        Trouble(
            kind=chance.choice(kinds),
            target=chance.randrange(1000),
            at_s=chance.choice((chance.uniform(0, 5), chance.uniform(0, _LAST_S))),
            seconds=chance.uniform(1, 30),
        )
        for _ in range(chance.randint(1, 4))
    )
