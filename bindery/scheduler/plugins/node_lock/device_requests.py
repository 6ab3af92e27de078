"""What pods of each shape ask of HAMi's devices, read once a shape.

Used by the plugin and its ledger. Invariant: equal shapes give the same ask, and a shape that
cannot be read asks for nothing and has a problem that is said at its pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bindery.api.hami import requests, wishes
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.requests import DeviceRequest, PodRequest
from bindery.api.hami.vendor import Vendor
from bindery.api.hami.wishes import DevicePolicy
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.plugins.node_lock.fit import ShapeRequest


@dataclass
class DeviceRequests:
    """The asks by shape. `vendors`: whose devices are planned."""

    vendors: Sequence[Vendor]
    default_policy: DevicePolicy
    _read_shapes: dict[Shape, ShapeRequest | None] = field(default_factory=dict)
    _problems: dict[Shape, str] = field(default_factory=dict)

    def of(self, shape: Shape) -> ShapeRequest | None:
        """Return what pods of `shape` ask for; None if nothing that is planned here."""
        if shape not in self._read_shapes:
            self._read_shapes[shape] = self._read(shape)
        return self._read_shapes[shape]

    def problem(self, shape: Shape) -> str:
        """Return why what pods of `shape` ask for cannot be given; "" if it can."""
        self.of(shape)
        return self._problems.get(shape, "")

    def policies(self, wanted: ShapeRequest) -> Sequence[DevicePolicy]:
        """Return in which order devices are taken for `ask`."""
        return wanted.wishes.device_policies or (self.default_policy,)

    def _read(self, shape: Shape) -> ShapeRequest | None:
        try:
            request = requests.read_pod(
                [(c.resources, c.restart_policy == "Always") for c in shape.init_containers],
                [c.resources for c in shape.containers],
            )
            if request is None:
                return None
            wanted = wishes.read(shape.annotations, request.vendors)
        except HamiFormatError as error:
            self._problems[shape] = str(error)
            return None
        if request.rounded is not None:
            self._problems[shape] = _rounded_text(request.rounded)
        planned = self._planned(request)
        return ShapeRequest(planned, wanted) if any(planned.slots) else None

    def _planned(self, request: PodRequest) -> PodRequest:
        """Leave out the vendors whose devices are not planned here."""
        slots = tuple(
            tuple(each for each in slot if each.vendor in self.vendors) for slot in request.slots
        )
        return PodRequest(slots, request.passing, request.names_shares)


def _rounded_text(request: DeviceRequest) -> str:
    """Return why a pod waits that the webhook has not seen: its device plugin counts devices."""
    name, count = request.vendor.count_resource, request.count
    return (
        f"{request.named_count} of {name}: only modules of {count} are given, and the device plugin"
        f" gives what the limit says; ask for {count}, which the admission webhook writes too"
    )
