"""The registered DRA drivers, and the times at which their ResourceSlices must be deleted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.claims.facts import ClaimError

SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""The services of drivers that the node agent calls, with the newest first."""
HEALTH_SERVICE: Final = "v1alpha1.DRAResourceHealth"

WIPING_DELAY_S: Final = 30.0
"""How long a driver may be gone before its ResourceSlices are deleted."""


@dataclass
class Instance:
    """A registered instance of a driver.

    Attributes:
        endpoint: its socket.
        service: the service that it is called by.
    """

    endpoint: str
    service: str
    is_connected: bool = False


class Drivers:
    """The registered instances of each driver.

    Several instances of a driver may be there at one time, as in a rolling update.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._instances: dict[str, list[Instance]] = {}
        self._wipe_at_s: dict[str, float] = {}

    def add(self, driver: str, endpoint: str, services: Sequence[str]) -> Instance:
        """Record an instance that has registered.

        Raises:
            ClaimError: no service of it is known, or the endpoint is registered already.
        """
        service = choose_service(driver, endpoint, services)
        present = self._instances.setdefault(driver, [])
        if any(one.endpoint == endpoint for one in present):
            raise ClaimError(
                f"endpoint {endpoint} already registered for DRA driver plugin {driver}"
            )
        instance = Instance(endpoint, service)
        present.append(instance)
        self._sync(driver)
        return instance

    def remove(self, driver: str, endpoint: str) -> None:
        """Record that an instance is gone; an unknown one is no error."""
        present = self._instances.get(driver, [])
        left = [one for one in present if one.endpoint != endpoint]
        if len(left) == len(present):
            return
        self._instances[driver] = left
        self._sync(driver)

    def set_connected(self, driver: str, endpoint: str, *, is_connected: bool) -> None:
        """Record whether the connection to an instance is up."""
        for one in self._instances.get(driver, ()):
            if one.endpoint == endpoint:
                one.is_connected = is_connected
        self._sync(driver)

    def find(self, driver: str) -> Instance:
        """Return the newest instance, connected ones first; raises ClaimError if none is known."""
        if not driver:
            raise ClaimError("DRA driver name is empty")
        instances = self._instances.get(driver, [])
        if not instances:
            raise ClaimError(f"DRA driver {driver} is not registered")
        return next((one for one in reversed(instances) if one.is_connected), instances[-1])

    def to_wipe(self) -> list[str]:
        """Return the drivers whose ResourceSlices must be deleted now, each driver once."""
        now = self._clock()
        due = sorted(driver for driver, at_s in self._wipe_at_s.items() if at_s <= now)
        for driver in due:
            del self._wipe_at_s[driver]
        return due

    def _sync(self, driver: str) -> None:
        if any(one.is_connected for one in self._instances.get(driver, ())):
            self._wipe_at_s.pop(driver, None)
        else:
            self._wipe_at_s.setdefault(driver, self._clock() + WIPING_DELAY_S)


def choose_service(driver: str, endpoint: str, services: Sequence[str]) -> str:
    """Return the first of a driver's services that is known; raises ClaimError if none is."""
    where = f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}"
    if not services:
        raise ClaimError(f"{where}: empty list of supported gRPC services (aka supported versions)")
    found = next((one for one in services if one in SERVICES), None)
    if found is None:
        raise ClaimError(
            f"{where}: none of services supported by the plugin ({list(services)}) are supported "
            f"by the kubelet ({list(SERVICES)})"
        )
    return found
