"""The number of GPUs that a resource claim (DRA) takes in the quota of its queue. Pure.

Each allocated device of a counted class is one GPU, partitions and shares included.
"""

from collections.abc import Callable, Iterator

from bindery.kube.objects.claims import DeviceClaim, DeviceRequest, ExactRequest, ResourceClaim

CountsClass = Callable[[str], bool]
"""Returns whether devices of a DeviceClass count as GPUs."""


def claimed_gpus(claim: ResourceClaim, counts_class: CountsClass) -> int:
    """Return the GPUs that `claim` has, or will have once it is allocated.

    Before the allocation, of several alternatives the largest counts, and a request for all devices
    counts as one. Admin access takes nothing.
    """
    if claim.status.allocation is None:
        return requested_gpus(claim.spec.devices, counts_class)
    classes = dict(_classes(claim.spec.devices))
    return sum(
        counts_class(classes.get(result.request, ""))
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    )


def requested_gpus(spec: DeviceClaim, counts_class: CountsClass) -> int:
    """Return the GPUs that a claim with `spec` will have once it is allocated."""
    return sum(_most(request, counts_class) for request in spec.requests)


def _most(request: DeviceRequest, counts_class: CountsClass) -> int:
    return max(
        (
            (1 if each.allocation_mode == "All" else each.count)
            for each in _alternatives(request)
            if counts_class(each.device_class_name) and not each.admin_access
        ),
        default=0,
    )


def _alternatives(request: DeviceRequest) -> list[ExactRequest]:
    return [request.exactly] if request.exactly is not None else request.first_available


def _classes(spec: DeviceClaim) -> Iterator[tuple[str, str]]:
    """Yield the name of each request, as in results, with its class."""
    for request in spec.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for each in request.first_available:
            yield f"{request.name}/{each.name}", each.device_class_name
