"""The device requests of pods for HAMi, read once per shape.

The plugin and its ledger use it. Invariant: equal shapes have the same request. An invalid shape
has no request, but a problem for its pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from bindery.api.hami import requests, wishes
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.requests import DeviceRequest, PodRequest
from bindery.api.hami.vendor import Vendor
from bindery.api.hami.wishes import DevicePolicy
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.plugins.hami.fit import ShapeRequest


@dataclass
class DeviceRequests:
    """The requests by shape."""

    vendors: Sequence[Vendor]
    """The planned vendors; requests for other devices are left to other plugins."""
    default_policy: DevicePolicy
    """The order of devices for pods without an annotation."""
    _read_shapes: WeakKeyDictionary[Shape, ShapeRequest | None] = field(
        default_factory=WeakKeyDictionary
    )
    """Weak, as `_problems`: shapes go with their pods."""
    _problems: WeakKeyDictionary[Shape, str] = field(default_factory=WeakKeyDictionary)

    def of(self, shape: Shape) -> ShapeRequest | None:
        """Return the request of pods of `shape`; None without planned devices."""
        if shape not in self._read_shapes:
            self._read_shapes[shape] = self._read(shape)
        return self._read_shapes[shape]

    def problem(self, shape: Shape) -> str:
        """Return why the request of pods of `shape` is invalid; "" if it is valid."""
        self.of(shape)
        return self._problems.get(shape, "")

    def policies(self, wanted: ShapeRequest) -> Sequence[DevicePolicy]:
        """Return the policies for the order of devices, for `wanted`."""
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
        # Without devices of planned vendors, the request is for other plugins.
        return ShapeRequest(planned, wanted) if any(planned.slots) else None

    def _planned(self, request: PodRequest) -> PodRequest:
        """Return `request` with the devices of planned vendors only."""
        slots = tuple(
            tuple(each for each in slot if each.vendor in self.vendors) for slot in request.slots
        )
        return PodRequest(slots, request.passing, request.names_shares)


def _rounded_text(request: DeviceRequest) -> str:
    """Return the message for a count without the rounding of the admission webhook.

    The webhook did not see the pod. The device plugin would allocate the count of the pod's limit,
    which is not a multiple of a module.
    """
    name, count = request.vendor.count_resource, request.count
    return (
        f"{name} is {request.named_count}, but devices are allocated in whole modules;"
        f" request {count}, as the admission webhook would"
    )
