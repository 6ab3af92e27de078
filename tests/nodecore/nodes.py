"""Pods and nodes for the tests of nodecore."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bindery.nodecore.checkpoints.store import MemoryStore
from bindery.nodecore.cpusets import CpuSet, parse_cpus
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology.hints import Hint

MIB = 1 << 20


def cpus(text: str) -> CpuSet:
    return parse_cpus(text)


def container(
    name: str = "app",
    cpu: float = 1,
    memory_mib: int = 100,
    *,
    is_sidecar: bool = False,
    **others: int,
) -> Container:
    """Return a container whose requests are its limits."""
    amounts = {"cpu": round(cpu * 1000), "memory": memory_mib * MIB, **others}
    amounts = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return Container(name, amounts, amounts, is_sidecar)


def pod(*containers: Container, uid: str = "pod", init: Sequence[Container] = ()) -> Pod:
    return Pod(uid, containers or (container(),), init, name=uid)


def whole_pod(*containers: Container, cpu: int, memory_mib: int = 400, uid: str = "pod") -> Pod:
    """Return a pod with pod-level resources."""
    amounts = {"cpu": cpu * 1000, "memory": memory_mib * MIB}
    return Pod(uid, containers, name=uid, requests=amounts, limits=amounts)


@dataclass
class FakeNode:
    """The pods of a node, and what the topology manager decided for its containers."""

    pods: list[Pod] = field(default_factory=list)
    ready: bool = True
    hints: Mapping[str, Hint] = field(default_factory=dict)

    def active_pods(self) -> Sequence[Pod]:
        return self.pods

    def sources_ready(self) -> bool:
        return self.ready

    def affinity(self, pod_uid: str, container: str) -> Hint:  # noqa: ARG002
        return self.hints.get(container, Hint(None, preferred=False))


class CountingStore(MemoryStore):
    """A store that counts writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, key: str, blob: bytes) -> None:
        self.writes += 1
        super().write(key, blob)
