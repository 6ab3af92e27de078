"""On which NUMA nodes devices can be had."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bindery.nodecore import masks
from bindery.nodecore.devices.state import NONE, Devices, DeviceState, Ids
from bindery.nodecore.pods import Container, Pod, total
from bindery.nodecore.topology.hints import Hint, ResourceHints, hint

Reusable = Mapping[str, Ids]
"""Resource -> devices of the pod's init containers that its later containers can have."""


def container_hints(
    state: DeviceState,
    reusable: Reusable,
    numa_nodes: Sequence[int],
    pod: Pod,
    container: Container,
) -> dict[str, ResourceHints]:
    """Return the hints for each resource of plugins that the container asks for."""
    return {
        resource: _hints(
            state,
            numa_nodes,
            resource,
            count,
            state.of_container(pod.uid, container.name, resource) or NONE,
            reusable.get(resource, NONE),
        )
        for resource, count in container.limits.items()
        if state.is_known(resource)
    }


def pod_hints(state: DeviceState, numa_nodes: Sequence[int], pod: Pod) -> dict[str, ResourceHints]:
    """Return the hints for each resource of plugins that the pod asks for as a whole."""
    return {
        resource: _hints(state, numa_nodes, resource, count, state.of_pod(pod.uid, resource), NONE)
        for resource, count in total(pod, "limits").items()
        if state.is_known(resource)
    }


def generate(
    devices: Devices,
    numa_nodes: Sequence[int],
    available: Ids,
    reusable: Ids,
    count: int,
) -> list[Hint]:
    """Return a hint for each set of NUMA nodes that has `count` devices.

    Reusable devices with a known place must all lie in the set. A hint is preferred if no smaller
    set could ever have so many, counting all devices.
    """
    places = {
        one: masks.mask_of(_known(device.numa_nodes, numa_nodes)) for one, device in devices.items()
    }
    nodes = sorted({node for place in places.values() for node in masks.nodes_of(place)})
    nodes = nodes or sorted(numa_nodes)
    placed = [
        places[one] for one in reusable if one in devices and devices[one].numa_nodes is not None
    ]
    free = [places.get(one, 0) for one in available]
    fewest = next(
        (mask.bit_count() for mask, near in _counts(places.values(), nodes) if near >= count),
        len(nodes),
    )
    room = count - len(placed)
    found = [mask for mask, near in _counts(free, nodes) if near >= room]
    if placed:
        found = [mask for mask in found if all(place & mask for place in placed)]
    return [hint(mask, mask.bit_count() == fewest) for mask in found]


def is_placed(devices: Devices) -> bool:
    """Return whether any device of the resource is near a NUMA node."""
    return any(device.numa_nodes for device in devices.values())


def _hints(
    state: DeviceState,
    numa_nodes: Sequence[int],
    resource: str,
    count: int,
    present: Ids,
    reusable: Ids,
) -> ResourceHints:
    devices = state.devices.get(resource, {})
    if not is_placed(devices):
        return None
    if present:
        if len(present) != count:
            return []
        return generate(devices, numa_nodes, present, NONE, count)
    available = state.available(resource)
    if len(available | reusable) < count:
        return []
    return generate(devices, numa_nodes, available, reusable, count)


def _known(nodes: tuple[int, ...] | None, numa_nodes: Sequence[int]) -> list[int]:
    """Return the NUMA nodes of a device that the machine has."""
    return [node for node in nodes or () if node in numa_nodes]


def _counts(places: Iterable[int], nodes: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return for each set of nodes, small sets first, how many devices are near one of its nodes.

    A device of several nodes counts once.
    """
    at = Counter(places)
    at.pop(0, None)
    if all(place & (place - 1) == 0 for place in at):
        return masks.sums({node: at.get(1 << node, 0) for node in nodes}).items()
    return [
        (mask, sum(count for place, count in at.items() if place & mask))
        for mask in masks.iterate(nodes)
    ]
