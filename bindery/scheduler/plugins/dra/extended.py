"""Extended resources that device classes serve (KEP-5004): their requests for devices.

A pod requests such a resource by name. On a node whose device plugin offers it, the plugin serves
it. On other nodes, the binder creates one claim for all such resources of the pod. The requests and
mappings are those of kube-scheduler (extendeddynamicresources.go, Kubernetes 1.36).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bindery.api import quantity
from bindery.api.quantity import QuantityError
from bindery.kube.objects.claims import CLASS_PREFIX, DeviceRequest, ExactRequest
from bindery.kube.objects.devices import DeviceClass
from bindery.kube.objects.podspec import Container
from bindery.kube.objects.watched import RequestMapping


class Asked(NamedTuple):
    """What a pod requests of device classes."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[RequestMapping, ...]
    """The requests that serve each container."""


def served_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return extended resource -> class that serves it.

    Of several classes with one resource name the newest serves it, then the first by name.
    """
    found: dict[str, str] = {}
    # Stable sorts: the last one written wins.
    ordered = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    for each in sorted(ordered, key=lambda each: each.metadata.creation_timestamp or ""):
        found[CLASS_PREFIX + each.metadata.name] = each.metadata.name
        if each.spec.extended_resource_name:
            found[each.spec.extended_resource_name] = each.metadata.name
    return found


def asked(
    init_containers: Sequence[Container],
    containers: Sequence[Container],
    classes: Mapping[str, str],
) -> Asked:
    """Return the requests of these containers for resources in `classes` (resource -> class)."""
    every = (*init_containers, *containers)
    passing = [i for i, each in enumerate(init_containers) if each.restart_policy != "Always"]
    lasting = [i for i in range(len(every)) if i not in passing]
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource, class_name in sorted(classes.items()):
        of_lasting: dict[int, DeviceRequest] = {}
        for index in lasting:
            own, mapped = _request(index, every[index], resource, class_name, ())
            mappings += mapped
            if own is not None:
                of_lasting[index] = own
        largest, mapped = _of_passing(
            [(index, every[index]) for index in passing], resource, class_name, of_lasting
        )
        mappings += mapped
        requests += ([largest] if largest is not None else []) + list(of_lasting.values())
    return Asked(tuple(sorted(requests, key=lambda each: each.name)), tuple(mappings))


def _of_passing(
    passing: Iterable[tuple[int, Container]],
    resource: str,
    class_name: str,
    of_lasting: Mapping[int, DeviceRequest],
) -> tuple[DeviceRequest | None, list[RequestMapping]]:
    """Return the request and mappings of init containers that end before others start.

    They use the devices of later containers, and all of them share the largest further request.
    """
    largest: DeviceRequest | None = None
    mappings: list[RequestMapping] = []
    own_names: set[str] = set()
    for index, container in passing:
        reusable = [each for at, each in of_lasting.items() if at >= index]
        own, mapped = _request(index, container, resource, class_name, reusable)
        mappings += mapped
        if own is not None:
            own_names.add(own.name)
            if largest is None or _count(largest) < _count(own):
                largest = own
    if largest is None:
        return None, mappings
    name = largest.name
    return largest, [
        RequestMapping(
            container_name=each.container_name,
            resource_name=each.resource_name,
            request_name=name if each.request_name in own_names else each.request_name,
        )
        for each in mappings
    ]


def _request(
    index: int,
    container: Container,
    resource: str,
    class_name: str,
    reusable: Iterable[DeviceRequest],
) -> tuple[DeviceRequest | None, list[RequestMapping]]:
    """Return the container's own request, and the requests that serve it.

    `reusable`: requests of other containers, whose devices it may use before it requests its own.
    """
    names, wanted = _wanted(container, resource)
    if not wanted:
        return None, []
    reused: list[str] = []
    for each in reusable:
        reused.append(each.name)
        wanted -= _count(each)
        if wanted <= 0:
            return None, list(_mappings(container, resource, reused))
    # The name means nothing to the kubelet. It is kube-scheduler's, as users know that one.
    name = f"container-{index}-request-{names.index(resource)}"
    exactly = ExactRequest(device_class_name=class_name, count=wanted)
    own = DeviceRequest(name=name, exactly=exactly)
    return own, list(_mappings(container, resource, [*reused, name]))


def _wanted(container: Container, resource: str) -> tuple[list[str], int]:
    """Return the names of all requests of a container, sorted, and the amount of `resource`."""
    resources = container.resources
    if resources is None:
        return [], 0
    amounts = {**(resources.limits or {}), **(resources.requests or {})}
    try:
        amount = quantity.parse(amounts.get(resource, "0"), resource)
    except QuantityError:  # the shape refuses the pod
        return [], 0
    return sorted(amounts), amount // quantity.scale(resource)


def _mappings(
    container: Container, resource: str, requests: Iterable[str]
) -> Iterator[RequestMapping]:
    for name in requests:
        yield RequestMapping(
            container_name=container.name, resource_name=resource, request_name=name
        )


def _count(request: DeviceRequest) -> int:
    assert request.exactly is not None, "made above"
    return request.exactly.count
