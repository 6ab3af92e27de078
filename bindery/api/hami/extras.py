"""Annotations that single vendors' device plugins read beside the device strings.

Called by `assignment` for the column `extras` of the table. Pure. Invariant: a text depends only on
the facts, so that repeated writes are equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from bindery.api.hami import gojson, migallocations
from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.poddevices import ContainerDevice, Slots
from bindery.api.hami.vendor import Extra, Vendor


@dataclass(frozen=True)
class Facts:
    """The facts about one pod and one vendor."""

    slots: Slots
    indexes: Mapping[str, int]
    mig: tuple[MigAllocation, ...]
    node: str
    now_s: float

    @property
    def devices(self) -> tuple[ContainerDevice, ...]:
        """The devices of all containers, in order."""
        return tuple(device for slot in self.slots for device in slot)


class _Npu(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: str = msgspec.field(name="UUID", default="")
    template: str = msgspec.field(name="temp", default="")
    memory_mib: int = msgspec.field(name="memory", default=0)
    cores: int = msgspec.field(name="core", default=0)


class _Sgpu(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: str
    compute: int = 0
    memory_mib: int = msgspec.field(name="vRam", default=0)


def render(extra: Extra, vendor: Vendor, facts: Facts) -> str:
    """Return the value of the annotation; "" if it is not needed."""
    return _RENDER[extra](vendor, facts)


def _indexes(_vendor: Vendor, facts: Facts) -> str:
    found = dict.fromkeys(device.device for device in facts.devices)
    return ",".join(str(facts.indexes.get(uuid, 0)) for uuid in found)


def _mlu_profile(vendor: Vendor, facts: Facts) -> str:
    first = facts.devices[0]
    units = first.memory_mib // vendor.memory_unit_mib
    return f"{facts.indexes.get(first.device, 0)}_{first.cores}_{units}"


def _npu_list(vendor: Vendor, facts: Facts) -> str:
    templates = {size.memory_mib: size.name for size in vendor.slices}
    return gojson.encode(
        [
            _Npu(d.uuid, templates.get(d.memory_mib, ""), d.memory_mib, d.cores)
            for d in facts.devices
        ]
    )


def _sgpu_slots(_vendor: Vendor, facts: Facts) -> str:
    return gojson.encode(
        [[_Sgpu(d.uuid, d.cores, d.memory_mib) for d in slot] for slot in facts.slots]
    )


def _mig_instances(_vendor: Vendor, facts: Facts) -> str:
    return migallocations.encode(facts.mig) if facts.mig else ""


_RENDER: Final[Mapping[Extra, Callable[[Vendor, Facts], str]]] = {
    Extra.INDEXES: _indexes,
    Extra.NODE: lambda _vendor, facts: facts.node,
    Extra.TIME_S: lambda _vendor, facts: str(int(facts.now_s)),
    Extra.TIME_NS: lambda _vendor, facts: str(int(facts.now_s * 1_000_000_000)),
    Extra.FALSE: lambda _vendor, _facts: "false",
    Extra.MLU_PROFILE: _mlu_profile,
    Extra.NPU_LIST: _npu_list,
    Extra.SGPU_SLOTS: _sgpu_slots,
    Extra.SHARES: lambda _vendor, facts: str(sum(device.cores for device in facts.devices)),
    Extra.MIG_INSTANCES: _mig_instances,
}
