"""A node agent that is killed at any write of a checkpoint continues with the same state."""

import pytest

from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.devices.state import Device
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import Container, Pod
from tests.nodecore import answering
from tests.nodecore.nodes import MIB, FakeNode, container, pod

CONFIG = NodeConfig(
    uniform(sockets=2, cores_per_numa=4, threads_per_core=2, memory_bytes_per_numa=1000 * MIB),
    {"cpu": 16000, "memory": 2000 * MIB},
    system_reserved={"cpu": 1000, "memory": 200 * MIB},
    cpu_policy="static",
    memory_policy="Static",
    reserved_memory=[(0, {"memory": 100 * MIB}), (1, {"memory": 100 * MIB})],
    topology_policy="restricted",
)
GPU = "vendor.com/gpu"


class KilledError(BaseException):
    """The process is killed."""


class Disk(MemoryStore):
    """Survives the process, which is killed before or after a write."""

    def __init__(self, writes_left: int, *, is_written: bool) -> None:
        super().__init__()
        self.writes_left = writes_left
        self._is_written = is_written

    def write(self, key: str, blob: bytes) -> None:
        self.writes_left -= 1
        if self.writes_left != 0 or self._is_written:
            super().write(key, blob)
        if self.writes_left == 0:
            raise KilledError


def asking(uid: str, cpu: int) -> Pod:
    wanted = container(cpu=cpu, memory_mib=100)
    with_gpu = {**wanted.limits, GPU: 1}
    app = Container("app", with_gpu, with_gpu)
    return pod(app, uid=uid, init=[container("init", cpu, memory_mib=200)])


PODS = [asking("first", 2), asking("second", 4), asking("third", 2)]


def life(disk: Disk, node: FakeNode) -> ContainerManager:
    """Start a node agent on the files, admit all pods again, and take the second one away."""
    files = CheckpointManager(disk)
    of = ContainerManager(CONFIG, node, files, files, lambda: 0.0)
    of.start()
    of.devices.register(GPU)
    of.devices.update(GPU, [Device(f"gpu-{number}", (number % 2,)) for number in range(4)])
    node.pods = list(PODS)
    for one in PODS:
        assert answering.admit(of, one).admit
    node.pods = [PODS[0], PODS[2]]
    for manager in (of.cpu, of.memory, of.devices):
        manager.remove_stale_state()
    return of


def states(of: ContainerManager) -> tuple[object, ...]:
    return of.cpu.state, of.memory.state, of.devices.state.held


def count_of_writes() -> int:
    disk = Disk(10**6, is_written=True)
    life(disk, FakeNode())
    return 10**6 - disk.writes_left


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("write", range(1, count_of_writes() + 1))
def test_the_state_is_the_same_after_a_kill_at_any_write(write: int, *, is_written: bool) -> None:
    disk = Disk(write, is_written=is_written)
    with pytest.raises(KilledError):
        life(disk, FakeNode())

    after = life(disk, FakeNode())

    assert states(after) == states(life(Disk(0, is_written=True), FakeNode()))
