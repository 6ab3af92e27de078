"""The decisions of a kubelet about pods, read from the files of its node."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, TypeVar

from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS
from bindery.nodeagent.beside.observed import FILES
from bindery.nodecore import checkpointfiles, sysfs
from bindery.nodecore.admission.result import ADMITTED, Admission
from bindery.nodecore.checkpointfiles import Entry
from bindery.nodecore.checkpoints import allocations
from bindery.nodecore.cpusets import CpuSet, parse_cpus
from bindery.nodecore.masks import mask_of
from devcluster.realnode.node import RealNode

T = TypeVar("T")

DECIDED_S: Final = 240.0
"""How long an emulated kubelet may take on a busy machine."""
_READ_FILES: Final = "cd /var/lib/kubelet && for each in {}; do cat $each 2>&-; echo; done"
"""A missing file is an empty line; each has one line."""
_PAUSE_S: Final = 0.3


@dataclass(frozen=True)
class Actual:
    """The outcome of a pod at the kubelet."""

    admission: Admission
    files: Mapping[str, bytes]
    """The checkpoints of the kubelet after the admission."""

    def zones(self, uid: str, cpus: Mapping[int, CpuSet]) -> int:
        """Return the mask of the zones that the pod has something of, by the checkpoints."""
        return reduce(or_, (mask_of(zones) for zones in self._held(uid, cpus)), 0)

    def agrees(self, zones: int, uid: str, cpus: Mapping[int, CpuSet]) -> bool:
        """Return whether the pod can hold something of exactly `zones`, by the checkpoints.

        Of memory that several zones give together, the checkpoint has only the sum: it may all be
        of one of them.
        """
        held = [mask_of(each) for each in self._held(uid, cpus)]
        return all(each & zones for each in held) and not zones & ~self.zones(uid, cpus)

    def _held(self, uid: str, cpus: Mapping[int, CpuSet]) -> Iterator[CpuSet]:
        """Yield the zones of each thing that the pod has; CPUs of each zone are one."""
        for name in FILES:
            for one in checkpointfiles.read(self.files[name]).entries:
                if one.pod == uid and one.resource == "cpus":
                    yield from (frozenset({each}) for each in _zones_of(one, cpus))
                elif one.pod == uid:
                    yield _zones_of(one, cpus)


def checkpoints(node: RealNode) -> dict[str, bytes]:
    """Return name of a checkpoint file -> its content; empty if it is missing."""
    # The kubelet writes the file of admitted pods last: what is in it is in the others too.
    names = (allocations.FILE, *FILES)
    text = node.run("sh", "-c", _READ_FILES.format(" ".join(names)))
    lines = map(str.encode, text.splitlines())
    return dict(zip(names, lines, strict=True))


def hardware_files(node: RealNode) -> dict[str, str]:
    """Return the files of the hardware, as `nodecore.sysfs` reads them."""
    patterns = " ".join(sysfs.PATTERNS)
    text = node.run("sh", "-c", f"cd /sys/devices/system && grep -H '' {patterns} || true")
    files: dict[str, str] = {}
    for line in text.splitlines():
        path, _, content = line.partition(":")
        files[path] = files.get(path, "") + content + "\n"
    return files


async def decided(client: Client, node: RealNode, namespace: str, name: str) -> Actual:
    """Wait until the kubelet has admitted or refused a pod that is bound to its node."""

    async def decision() -> Actual | None:
        pod = await client.get(PODS, name, namespace)
        status = pod.status
        if status.phase == "Failed":
            refusal = Admission(admit=False, reason=status.reason, message=status.message)
            return Actual(refusal, checkpoints(node))
        files = checkpoints(node)
        is_admitted = pod.metadata.uid in allocations.decode(files[allocations.FILE])
        return Actual(ADMITTED, files) if is_admitted else None

    found = await until(decision, f"the kubelet decides about {name}")
    assert found is not None
    return found


def _zones_of(entry: Entry, cpus: Mapping[int, CpuSet]) -> frozenset[int]:
    """Return the zones of an entry of a checkpoint."""
    if entry.resource == "cpus":
        own = parse_cpus(entry.value)
        return frozenset(zone for zone, listed in cpus.items() if listed & own)
    return parse_cpus(entry.value.rpartition(" ")[2])


async def until(probe: Callable[[], Awaitable[T]], what: str, timeout_s: float = DECIDED_S) -> T:
    """Ask `probe` until it answers something true; asking costs an emulated machine time."""
    deadline_s = time.monotonic() + timeout_s
    while not (answer := await probe()):
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s:.0f} s"
        await asyncio.sleep(_PAUSE_S)
    return answer
