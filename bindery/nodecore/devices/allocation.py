"""Which devices a container gets: reusable ones, then near ones, then those a plugin prefers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bindery.nodecore.checkpoints.devices import NO_NUMA_NODE
from bindery.nodecore.devices.hints import is_placed
from bindery.nodecore.devices.state import NONE, Devices, DeviceState, Ids
from bindery.nodecore.errors import AllocationError

Preferred = Callable[[Ids, Ids, int], Iterable[str]]
"""A plugin's preferred allocation: available ids, ids that must be included, size -> ids."""


@dataclass(frozen=True)
class ByAffinity:
    """Available devices by where they are.

    Attributes:
        aligned: on NUMA nodes of the mask.
        unaligned: on other NUMA nodes.
        without: on no NUMA node, or if there is no mask.
    """

    aligned: Ids = NONE
    unaligned: Ids = NONE
    without: Ids = NONE


@dataclass(frozen=True)
class PluginDeviceRequest:
    """A container's request for devices of one resource.

    Attributes:
        mask: the NUMA nodes that the topology manager chose, None for any.
        reusable: devices of the pod's init containers.
    """

    pod_uid: str
    container: str
    resource: str
    count: int
    mask: int | None = None
    reusable: Ids = NONE


def devices_to_allocate(
    state: DeviceState,
    request: PluginDeviceRequest,
    preferred: Preferred | None = None,
    *,
    is_running: bool = False,
) -> Ids:
    """Return the devices to give, none if the container has them already.

    `is_running`: whether the container ran already when the node agent started, and not all pods
    are known yet.

    Raises:
        AllocationError: the devices are not there, not healthy, or the request has changed.
    """
    resource = request.resource
    present = state.of_container(request.pod_uid, request.container, resource)
    if present is not None and len(present) != request.count:
        raise AllocationError(
            f'pod "{request.pod_uid}" container "{request.container}" changed request for resource '
            f'"{resource}" from {len(present)} to {request.count}'
        )
    if is_running:
        return NONE
    healthy = state.healthy.get(resource)
    if healthy is None:
        raise AllocationError(f"cannot allocate unregistered device {resource}")
    if not healthy:
        raise AllocationError(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        )
    if present is not None and not present <= healthy:
        raise AllocationError(
            "previously allocated devices are no longer healthy; cannot allocate unhealthy devices "
            f"{resource}"
        )
    if present is not None or request.count == 0:
        return NONE
    return choose(state.devices.get(resource, {}), state.available(resource), request, preferred)


def choose(
    devices: Devices,
    available: Ids,
    request: PluginDeviceRequest,
    preferred: Preferred | None = None,
) -> Ids:
    """Return the requested number of devices; of equal devices, the lowest ids first.

    `available`: the free devices, without the reusable ones.

    Raises:
        AllocationError: there are not enough.
    """
    taken = frozenset(sorted(request.reusable)[: request.count])
    needed = request.count - len(taken)
    if needed == 0:
        return taken
    free = available - taken
    if len(free) < needed:
        raise AllocationError(
            f"requested number of devices unavailable for {request.resource}. "
            f"Requested: {needed}, Available: {len(free)}"
        )
    places = filter_by_affinity(devices, free, request.mask)
    if needed < len(places.aligned):
        wanted = _ask(preferred, places.aligned | taken, taken, request.count)
        order = [wanted & places.aligned, places.aligned]
    else:
        taken |= places.aligned
        needed -= len(places.aligned)
        wanted = _ask(preferred, free | taken, taken, request.count) if needed else NONE
        order = [wanted & free, places.unaligned, places.without]
    for group in order:
        more = sorted(group - taken)[:needed]
        taken |= frozenset(more)
        needed -= len(more)
    return taken


def filter_by_affinity(devices: Devices, available: Ids, mask: int | None) -> ByAffinity:
    """Return the available devices by whether they are near the NUMA nodes of `mask`.

    A device of several NUMA nodes counts at one of them: nodes of the mask come first, and of
    these the nodes with fewer devices.
    """
    if mask is None or not is_placed(devices):
        return ByAffinity(without=available)
    at_node: dict[int, set[str]] = {}
    for one in available:
        device = devices.get(one)
        for node in (device.numa_nodes if device else None) or (NO_NUMA_NODE,):
            at_node.setdefault(node, set()).add(one)

    def order(node: int) -> tuple[bool, bool, int, int]:
        return not _is_in(node, mask), node == NO_NUMA_NODE, len(at_node[node]), node

    groups: dict[str, set[str]] = {"aligned": set(), "unaligned": set(), "without": set()}
    left = set(available)
    for node in sorted(at_node, key=order):
        kind = "aligned" if _is_in(node, mask) else "unaligned"
        groups["without" if node == NO_NUMA_NODE else kind] |= at_node[node] & left
        left -= at_node[node]
    return ByAffinity(**{kind: frozenset(ids) for kind, ids in groups.items()})


def _is_in(node: int, mask: int) -> bool:
    return node >= 0 and bool(mask >> node & 1)


def _ask(preferred: Preferred | None, available: Ids, included: Ids, size: int) -> Ids:
    return NONE if preferred is None else frozenset(preferred(available, included, size))
