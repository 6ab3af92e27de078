"""The resource axis, and the requests of pods along it.

All columns of the scheduler have the shape [resource, node] or [resource, queue]. This module gives
each resource its position on the first axis. A position never changes, so requests stay valid when
the axis grows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bindery.api import quantity
from bindery.api.gpus import GpuResources
from bindery.api.gpushare import WHOLE, GpuShare
from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import QuantityError
from bindery.kube.objects.podspec import Container, PodSpec

PODS = "pods"
_MOST = 2**50
"""The largest request of one pod for a resource, a pebibyte.

The sum over 8,000 such pods in a queue or on a node stays within int64. The pods on a node may
exceed its capacity, as users can set a pod's node themselves."""
MOST_UNOFFERED = 256
"""Maximum number of resources that get a position only because pods name them.

Users can write any names, and each takes a row in every column."""
_SHORT_NAMES = {"gpu": GPU_RESOURCE}


def full_name(name: str) -> str:
    """Return the name of the resource `name` on the axis; `gpu` is an abbreviation."""
    return _SHORT_NAMES.get(name, name)


def short_name(name: str) -> str:
    """Return the name of the resource `name` for people: `gpu` for the GPU resource."""
    return "gpu" if name == GPU_RESOURCE else name


@dataclass(frozen=True, slots=True)
class CardPart:
    """The request of one container for GPUs that HAMi shares."""

    devices: int
    memory_mib: int
    """Per device; 0 if the request has no amount in MiB."""
    portion: int
    """Per device, in milli devices: the larger of its cores and its percentage of memory."""

    def amount(self, card_mib: int) -> int:
        """Return its GPU units on cards of `card_mib` MiB, by the larger of memory and cores."""
        whole = quantity.scale(GPU_RESOURCE)
        # A part of a card counts at least 1 unit and at most a whole card.
        by_memory = self.memory_mib * whole // max(card_mib, 1)
        return min(max(self.portion, by_memory, 1), whole) * self.devices


@dataclass(frozen=True, slots=True)
class CardParts:
    """The request of a pod for GPUs that HAMi shares, as its queue counts it."""

    running: tuple[CardPart, ...]
    passing: tuple[CardPart, ...] = ()
    """Of init containers, which run one after another before the other containers."""

    def amount(self, card_mib: int) -> int:
        """Return the pod's GPU units on cards of `card_mib` MiB."""
        together = sum(part.amount(card_mib) for part in self.running)
        return max(together, *(part.amount(card_mib) for part in self.passing), 0)


@dataclass(frozen=True, slots=True)
class Request:
    """The request of one pod: sparse along the resource axis, without zero amounts."""

    indices: tuple[int, ...]
    amounts: tuple[int, ...]
    """int64 range, in the units of `bindery.api.quantity`."""
    share: GpuShare | None = None
    """Its share of single GPUs, whole GPUs included. For a share by memory the amount of GPUs
    differs between nodes; `amounts` then has the amount on the smallest devices."""

    part: CardParts | None = None
    """Its request for GPUs that HAMi shares; `amounts` has the shares as nodes count them."""
    counted_gpus: tuple[int, int] | None = None
    """Position and units of the GPUs that queues count for other resources, such as MIG instances;
    not part of `amounts`."""

    @property
    def is_by_memory(self) -> bool:
        """Whether its amount of GPUs differs between nodes."""
        return self.part is not None or (self.share is not None and self.share.memory_mib > 0)

    @property
    def in_queues(self) -> "Request":
        """The request as queues count it: with `counted_gpus` in `amounts`."""
        if self.counted_gpus is None:
            return self
        return _merged(self)

    @property
    def on_nodes(self) -> "Request":
        """The request without what only queues count."""
        return self if self.counted_gpus is None else replace(self, counted_gpus=None)

    def plus(self, amounts: Mapping[int, int]) -> "Request":
        """Return this request with further amounts: position on the axis -> units."""
        return replace(
            self,
            indices=(*self.indices, *amounts.keys()),
            amounts=(*self.amounts, *amounts.values()),
        )

    def instead(self, index: int, amount: int) -> "Request":
        """Return this request with another amount at position `index` of the axis."""
        amounts = tuple(
            amount if at == index else old
            for at, old in zip(self.indices, self.amounts, strict=True)
        )
        return replace(self, amounts=amounts)


class ResourceAxis:
    """The position of each resource on the first axis of all columns."""

    def __init__(self, gpus: GpuResources | None = None) -> None:
        """`gpus`: the resources that queues count as GPUs."""
        self.gpus = gpus or GpuResources()
        self.names: list[str] = []
        self._index: dict[str, int] = {}
        self._counted: list[tuple[int, int]] = []
        """The result of `counted_as_gpus` for the first `_looked_at` resources."""
        self._looked_at = 0
        self.given_to_pods = 0
        """Number of resources that pods named before any node or queue did."""
        for name in ("cpu", "memory", PODS, GPU_RESOURCE):
            self.index(name)

    def __contains__(self, name: str) -> bool:
        return full_name(name) in self._index

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the position of the resource `name`; a new resource gets one."""
        name = full_name(name)
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = len(self.names)
            self.names.append(name)
        return index

    def has_room_for(self, names: Iterable[str]) -> bool:
        """Return whether a pod may name the resources `names`; see `MOST_UNOFFERED`."""
        new = sum(full_name(name) not in self._index for name in names)
        return not new or self.given_to_pods + new <= MOST_UNOFFERED

    def request(self, amounts: Mapping[str, int], share: GpuShare | None = None) -> Request:
        """Return `amounts` (resource name -> units) as a Request.

        If a `share` of GPUs is given, `amounts` includes it already.
        """
        before = len(self.names)
        pairs = sorted((self.index(name), amount) for name, amount in amounts.items() if amount > 0)
        # Pods name resources here; nodes and queues do with `index`.
        self.given_to_pods += len(self.names) - before
        whole = amounts.get(GPU_RESOURCE, 0) // quantity.scale(GPU_RESOURCE)
        if share is None and whole > 0:
            share = GpuShare(portion=WHOLE, devices=whole)
        counted = sum(amount * self.gpus.gpus_of(name) for name, amount in amounts.items())
        return Request(
            tuple(i for i, _ in pairs),
            tuple(amount for _, amount in pairs),
            share,
            counted_gpus=(self.index(GPU_RESOURCE), counted) if counted > 0 else None,
        )

    def counted_as_gpus(self) -> Sequence[tuple[int, int]]:
        """Return the resources that count as GPUs besides `nvidia.com/gpu`: position, GPUs of one.

        MIG profiles that do not exist are left out.
        """
        for index in range(self._looked_at, len(self.names)):
            gpus = self.gpus.gpus_of(self.names[index])
            if gpus:
                self._counted.append((index, gpus))
        self._looked_at = len(self.names)
        return self._counted

    def display(self, index: int, amount: int) -> str:
        """Return `amount` of the resource at `index` as text for people."""
        return quantity.display(amount, self.names[index])

    def in_wholes(self, amounts: Iterable[float]) -> dict[str, float]:
        """Return `amounts` [resource] by name, in devices, cores and bytes, without pods."""
        return {
            short_name(name): float(amount) / quantity.scale(name)
            for name, amount in zip(self.names, amounts, strict=True)
            if name != PODS
        }


@lru_cache(maxsize=4096)  # equal pods share one request object
def _merged(request: Request) -> Request:
    assert request.counted_gpus is not None, "asked by the caller"
    index, gpus = request.counted_gpus
    plain = replace(request, counted_gpus=None)
    if index not in request.indices:
        return plain.plus({index: gpus})
    return plain.instead(index, request.amounts[request.indices.index(index)] + gpus)


def gpu_amount(portion: int, devices: int) -> int:
    """Return the units on the axis of shares of `portion` (of `WHOLE`) of `devices` devices.

    Rounded down, so that the shares of one device together are at most one device.
    """
    return max(1, portion * quantity.scale(GPU_RESOURCE) // WHOLE) * devices


def pod_amounts(spec: PodSpec) -> dict[str, int]:
    """Return the request of a pod with `spec` by resource, with 1 of `pods`.

    This is the larger of the sum of all containers and the sum of each init container with the
    sidecars before it (KEP-753), replaced by the pod-level request if there is one (KEP-2837), plus
    overhead.

    Raises:
        QuantityError: a request does not parse, or it is so large that columns could overflow.
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, _requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        requests = _requests(container)
        if container.restart_policy == "Always":
            _add(sidecars, requests)
            requests = {}
        # An init container runs beside the sidecars that started before it.
        _raise_to(peak, _sum(sidecars, requests))
    _add(running, sidecars)
    _raise_to(running, peak)
    if spec.resources is not None and spec.resources.requests:
        running.update(_parse(spec.resources.requests))
    if spec.overhead:
        _add(running, _parse(spec.overhead))
    for name, amount in running.items():
        if amount > _MOST:
            raise QuantityError(f"{amount} of {name} in all is out of range")
    running[PODS] = 1
    return running


def reservation_amounts(planned: Mapping[str, str]) -> dict[str, int]:
    """Return the request of a reservation pod beside its GPU: `planned`, with 1 of `pods`."""
    return {**_parse(planned), PODS: 1}


def _requests(container: Container) -> dict[str, int]:
    resources = container.resources
    if resources is None:
        return {}
    # A limit without a request also sets the request, as in the API server's defaulting.
    try:
        return _parse({**(resources.limits or {}), **(resources.requests or {})})
    except QuantityError as error:
        raise QuantityError(f"container {container.name}: {error}") from error


def _parse(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return `quantities` in integer units; a QuantityError names the resource."""
    amounts = {}
    for name, text in quantities.items():
        try:
            amounts[name] = quantity.parse(text, name)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from error
    return amounts


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    _add(total, second)
    return total


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


def total(requests: Iterable[Request]) -> dict[int, int]:
    """Return the sum of `requests` as queues count them: position on the resource axis -> units.

    Equal pods share one request object, so a gang takes hardly longer than one pod.
    """
    shared = [request.in_queues for request in requests]
    if not shared:
        return {}
    if len(shared) == 1:
        return dict(zip(shared[0].indices, shared[0].amounts, strict=True))
    counts = Counter(map(id, shared))
    amounts: dict[int, int] = {}
    for key, request in dict(zip(map(id, shared), shared, strict=True)).items():
        for index, amount in zip(request.indices, request.amounts, strict=True):
            amounts[index] = amounts.get(index, 0) + counts[key] * amount
    return amounts
