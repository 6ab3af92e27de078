"""The health of devices of DRA drivers, as the drivers report it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from bindery.nodecore.checkpoints.claims import ClaimDevice

DEFAULT_TIMEOUT_S: Final = 30.0
RECONNECT_AFTER_S: Final = 5.0
LONGEST_MESSAGE: Final = 1024

_CUT: Final = "..."


class Health(StrEnum):
    """How a device is."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class DeviceHealth:
    """The health of a device.

    Attributes:
        message: the driver's text about the health.
        timeout_s: seconds for which a report is valid, 0 for the default.
        updated_at_s: time of the report, in seconds since the epoch.
    """

    pool: str
    device: str
    health: Health = Health.UNKNOWN
    message: str = ""
    timeout_s: float = 0.0
    updated_at_s: float = 0.0

    def is_expired(self, now_s: float) -> bool:
        """Return whether the report is too old to count."""
        return now_s - self.updated_at_s > (self.timeout_s or DEFAULT_TIMEOUT_S)


@dataclass(frozen=True)
class HealthState:
    """The last reports: driver -> pool and device -> health."""

    drivers: Mapping[str, Mapping[tuple[str, str], DeviceHealth]] = field(default_factory=dict)

    def of(self, driver: str, pool: str, device: str, now_s: float) -> DeviceHealth:
        """Return the health of a device, unknown without a report that counts."""
        found = self.drivers.get(driver, {}).get((pool, device))
        if found is None or found.is_expired(now_s):
            return DeviceHealth(pool, device)
        return found

    def without(self, driver: str) -> "HealthState":
        """Return the state without a driver."""
        return HealthState({name: of for name, of in self.drivers.items() if name != driver})


def shown(
    state: HealthState, devices: Iterable[tuple[str, ClaimDevice]], now_s: float
) -> dict[str, str]:
    """Return the health of devices for a status, by their first CDI id or their name.

    `devices`: each with its driver. Source: `buildResourceHealth` of the kubelet's DRA manager,
    Kubernetes 1.36.
    """
    found: dict[str, str] = {}
    for driver, one in devices:
        name = one.cdi_ids[0] if one.cdi_ids else f"{driver}/{one.pool}/{one.device}"
        found.setdefault(name, state.of(driver, one.pool, one.device, now_s).health.value)
    return found


def reported(
    state: HealthState, driver: str, devices: Iterable[DeviceHealth], now_s: float
) -> tuple[HealthState, list[DeviceHealth]]:
    """Return the state after a driver's report, and the devices that have changed.

    A device that is missing in the report becomes unknown once its last report has expired.
    """
    known = dict(state.drivers.get(driver, {}))
    changed = []
    now = {(one.pool, one.device): replace(one, updated_at_s=now_s) for one in devices}
    for key, one in now.items():
        before = known.get(key)
        if before is None or replace(before, updated_at_s=now_s) != one:
            changed.append(one)
        known[key] = one
    for key, one in known.items():
        if key not in now and one.health != Health.UNKNOWN and one.is_expired(now_s):
            known[key] = replace(one, health=Health.UNKNOWN, message="", updated_at_s=now_s)
            changed.append(known[key])
    return HealthState({**state.drivers, driver: known}), changed


def truncated(message: str) -> str:
    """Return a message for the pod's status, cut to its longest length in bytes."""
    text = message.encode()
    if len(text) <= LONGEST_MESSAGE:
        return message
    return text[: LONGEST_MESSAGE - len(_CUT)].decode(errors="ignore") + _CUT
