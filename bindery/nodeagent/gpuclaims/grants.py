"""What an allocated claim gives to its containers: GPUs, each with a limit. Pure.

NVIDIA's container runtime and HAMi-core read the variables. A limit has an effect only where
HAMi-core's library is loaded.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bindery.api.quantity import QuantityError, nano, parse
from bindery.kube.objects.claims import DeviceResult, ResourceClaim
from bindery.nodeagent.gpuclaims.offers import MIB, Gpus, OfferedGpu
from bindery.nodeagent.gpuclaims.slices import ALL_CORES, CORES, DRIVER, MEMORY

_NANO = 10**9


class GrantError(Exception):
    """The claim cannot be prepared; the kubelet shows the text at the pod."""


class NoRoomError(GrantError):
    """Claims that are prepared hold what the claim is to get."""


@dataclass(frozen=True)
class GpuPart:
    """A part of a GPU.

    Attributes:
        cores: percent of its time.
    """

    memory_mib: int
    cores: int

    def __add__(self, other: "GpuPart") -> "GpuPart":
        return GpuPart(self.memory_mib + other.memory_mib, self.cores + other.cores)


NOTHING = GpuPart(0, 0)


@dataclass(frozen=True)
class GrantedShare:
    """A device of an allocated claim.

    Attributes:
        part: None for admin access, which has no limit and takes nothing; a MIG instance whole.
    """

    request: str
    gpu: OfferedGpu
    part: GpuPart | None
    share_id: str

    @property
    def is_limited(self) -> bool:
        """Whether HAMi-core has to hold containers to the part."""
        return self.part is not None and not self.gpu.is_instance


def grants(claim: ResourceClaim, node: str, gpus: Gpus) -> tuple[GrantedShare, ...]:
    """Return what `claim` gives on the node, in the order of its results.

    Raises:
        GrantError: the claim is not allocated, or holds what the node does not offer.
    """
    allocation = claim.status.allocation
    if allocation is None:
        raise GrantError("the claim is not allocated")
    offered = {gpu.name: gpu for gpu in gpus}
    found = tuple(
        _grant(result, node, offered)
        for result in allocation.devices.results
        if result.driver == DRIVER
    )
    if not found:
        raise GrantError(f"the claim has no device of {DRIVER}")
    for request in {grant.request for grant in found}:
        if len({grant.gpu.is_instance for grant in found if grant.request == request}) > 1:
            # Limits have the numbers of the GPUs that a container sees, which instances have not.
            raise GrantError(f"the request {request} has both MIG instances and shares of GPUs")
    return found


def _grant(result: DeviceResult, node: str, offered: Mapping[str, OfferedGpu]) -> GrantedShare:
    gpu = offered.get(result.device) if result.pool == node else None
    if gpu is None:
        raise GrantError(f"the node {node} has no device {result.device} of pool {result.pool}")
    # A request of alternatives is followed by the chosen one; containers name the request alone.
    request = result.request.partition("/")[0]
    part = None if result.admin_access else _part(result, gpu)
    return GrantedShare(request, gpu, part, result.share_id or "")


def _part(result: DeviceResult, gpu: OfferedGpu) -> GpuPart:
    if gpu.is_instance:
        return GpuPart(gpu.memory_mib, ALL_CORES)
    try:
        taken = result.consumed_capacity
        memory_mib = parse(taken[MEMORY], MEMORY) // MIB
        cores = -(-nano(taken[CORES]) // _NANO)
    except KeyError as error:
        raise GrantError(
            f"the allocation of {result.device} has no consumed capacity {error}: is the feature "
            "gate DRAConsumableCapacity off?"
        ) from error
    except QuantityError as error:
        raise GrantError(f"the allocation of {result.device} is wrong: {error}") from error
    if memory_mib < 1 or cores < 1:
        # As a limit, 0 would mean that there is none.
        raise GrantError(f"the allocation of {result.device} gives less than 1 MiB or no cores")
    return GpuPart(memory_mib, cores)


# ---- parts that are held ------------------------------------------------------------------------

Held = Mapping[str, GpuPart]
"""UUID of a GPU -> what is held of it."""


def held(given: Iterable[GrantedShare]) -> dict[str, GpuPart]:
    """Return what the grants hold of each GPU."""
    found: dict[str, GpuPart] = {}
    for grant in given:
        if grant.part is not None:
            found[grant.gpu.uuid] = found.get(grant.gpu.uuid, NOTHING) + grant.part
    return found


def check_room(given: Sequence[GrantedShare], others: Mapping[str, Held]) -> None:
    """Check that the GPUs have room for a claim beside the prepared claims `others`, by UID.

    Schedulers see to that. A pod that was deleted by force may still hold what they gave away.

    Raises:
        NoRoomError: a GPU would be given out more than once.
    """
    gpus = {grant.gpu.uuid: grant.gpu for grant in given}
    for uuid, wanted in held(given).items():
        holders = [uid for uid, parts in others.items() if uuid in parts]
        total = sum((others[uid][uuid] for uid in holders), wanted)
        if total.memory_mib > gpus[uuid].memory_mib or total.cores > ALL_CORES:
            raise NoRoomError(
                f"{uuid} has no room for {wanted.memory_mib} MiB and {wanted.cores} % beside the "
                f"claims that are prepared: {', '.join(sorted(holders)) or 'none'}"
            )


def encode(parts: Held) -> str:
    """Return what is held as text, for the annotation of a CDI file."""
    plain = {uuid: [part.memory_mib, part.cores] for uuid, part in parts.items()}
    return json.dumps(plain, sort_keys=True)


def decode(text: str) -> dict[str, GpuPart]:
    """Return what `encode` has written; raises TypeError or ValueError for other text."""
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise TypeError("it is not an object")
    return {uuid: GpuPart(int(memory), int(cores)) for uuid, (memory, cores) in plain.items()}


# ---- variables ----------------------------------------------------------------------------------


def variables(given: Sequence[GrantedShare]) -> dict[str, str]:
    """Return the variables for containers that use one request, with its grants."""
    parts = held(given)
    # In the order in which the driver's tools number the GPUs that a container sees.
    gpus = sorted({grant.gpu for grant in given}, key=lambda gpu: (gpu.index, gpu.uuid))
    found = {"NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}
    if all(grant.is_limited for grant in given):
        limited = [parts[gpu.uuid] for gpu in gpus]
        for place, part in enumerate(limited):
            found[f"CUDA_DEVICE_MEMORY_LIMIT_{place}"] = f"{part.memory_mib}m"
            found[f"CUDA_DEVICE_SM_LIMIT_{place}"] = str(part.cores)
        # For what knows one limit for all GPUs of a container.
        found["CUDA_DEVICE_SM_LIMIT"] = str(min(part.cores for part in limited))
    return found
