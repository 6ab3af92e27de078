"""The managers over time: state restored after a restart, and reconciliation.

The cases of both tables are those of the kubelet's tests.
"""

import pytest

from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.cpu.manager import ContainerStatus, CpuManager, RunState
from bindery.nodecore.cpu.options import CpuOptions
from bindery.nodecore.cpu.static import new_policy
from bindery.nodecore.cpu.topology import discover
from bindery.nodecore.cpusets import CpuSet
from bindery.nodecore.features import Features
from bindery.nodecore.machine import uniform
from bindery.nodecore.memory.manager import MemoryManager
from bindery.nodecore.memory.static import StaticMemoryPolicy
from bindery.nodecore.pods import Pod
from tests.nodecore.nodes import MIB, FakeNode, container, cpus, pod, whole_pod

WHOLE_PODS = Features(pod_level_resource_managers=True)
NO_FEATURE = Features()
MACHINE = uniform(cores_per_numa=4, memory_bytes_per_numa=1000 * MIB)
WHOLE = whole_pod(container("one", 1, 100), cpu=2, memory_mib=128)
PARTS = pod(container("one", 1, 100), container("two", 1, 100))

RESTARTS = pytest.mark.parametrize(
    ("asking", "features", "is_whole", "held"),
    [
        (WHOLE, WHOLE_PODS, True, ["one"]),
        (WHOLE, NO_FEATURE, False, []),
        (PARTS, WHOLE_PODS, False, ["one", "two"]),
        (PARTS, NO_FEATURE, False, ["one", "two"]),
    ],
)


def allocate(manager: CpuManager | MemoryManager, asking: Pod, features: Features) -> None:
    if features.pod_level_resource_managers and asking.has_pod_level_resources:
        manager.allocate_pod(asking)
    else:
        for one in asking.containers:
            manager.allocate(asking, one)
    for one in asking.containers:
        manager.add_container(asking, one, f"id-{one.name}")


def cpu_manager(
    node: FakeNode, store: MemoryStore, features: Features = NO_FEATURE, *, is_strict: bool = False
) -> CpuManager:
    options = CpuOptions(strict_reservation=is_strict)
    policy = new_policy(discover(MACHINE), 1, options=options, features=features)
    made = CpuManager(policy, node, node, CheckpointManager(store), features)
    made.start({})
    return made


def memory_manager(node: FakeNode, store: MemoryStore, features: Features) -> MemoryManager:
    policy = StaticMemoryPolicy(MACHINE, {0: {"memory": 100 * MIB}}, features)
    made = MemoryManager(policy, node, node, CheckpointManager(store), features)
    made.start({})
    return made


@RESTARTS
def test_cpus_are_restored_after_a_restart(
    asking: Pod, features: Features, is_whole: bool, held: list[str]
) -> None:
    node, store = FakeNode([asking]), MemoryStore()
    first = cpu_manager(node, store, features)
    allocate(first, asking, features)

    again = cpu_manager(node, store, features).state

    assert again == first.state
    assert [len(found) for found in again.pods.values()] == ([2] if is_whole else [])
    assert list(again.containers.get("pod", {})) == held
    assert all(again.containers.get("pod", {}).values())


@RESTARTS
def test_memory_is_restored_after_a_restart(
    asking: Pod, features: Features, is_whole: bool, held: list[str]
) -> None:
    node, store = FakeNode([asking]), MemoryStore()
    first = memory_manager(node, store, features)
    allocate(first, asking, features)

    again = memory_manager(node, store, features).state

    assert again == first.state
    assert [block.size for blocks in again.pods.values() for block in blocks] == (
        [128 * MIB] if is_whole else []
    )
    assert list(again.containers.get("pod", {})) == held
    assert all(again.containers.get("pod", {}).values())


RUNNING = ContainerStatus("id", RunState.RUNNING)


class Runtime:
    """Takes the CPUs of containers, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.updates: list[tuple[str, CpuSet]] = []

    def __call__(self, container_id: str, found: CpuSet) -> None:
        if self.fails:
            raise OSError("no such container")
        self.updates.append((container_id, found))


@pytest.mark.parametrize(
    ("statuses", "fails", "success", "failure", "updates"),
    [
        ({"pod": {"app": RUNNING}}, False, ["app"], [], [("id", cpus("1-2"))]),
        ({}, False, [], [""], []),
        ({"pod": {"other": RUNNING}}, False, [], ["app"], []),
        ({"pod": {"app": ContainerStatus("", RunState.WAITING)}}, False, [], ["app"], []),
        ({"pod": {"app": ContainerStatus("id", RunState.WAITING)}}, False, [], ["app"], []),
        ({"pod": {"app": ContainerStatus("id", RunState.TERMINATED)}}, False, [], [], []),
        ({"pod": {"app": RUNNING}}, True, [], ["app"], []),
    ],
)
@pytest.mark.parametrize("is_init", [False, True])
def test_recorded_cpus_are_applied_to_the_running_container(
    statuses: dict[str, dict[str, ContainerStatus]],
    fails: bool,
    success: list[str],
    failure: list[str],
    updates: list[tuple[str, CpuSet]],
    is_init: bool,
) -> None:
    app = container(cpu=2)
    asking = Pod("pod", () if is_init else (app,), [app] if is_init else (), name="pod")
    manager, runtime = cpu_manager(FakeNode([asking]), MemoryStore()), Runtime(fails=fails)
    manager.allocate(asking, app)
    before = manager.state

    done = manager.reconcile(statuses, runtime)

    assert [name for _, name, _ in done.success] == success
    assert [name for _, name, _ in done.failure] == failure
    assert runtime.updates == updates
    assert manager.state == before


def test_a_container_is_updated_once_and_again_when_its_cpus_change() -> None:
    own, shared = pod(container(cpu=2), uid="own"), pod(container(cpu=0.5), uid="shared")
    node, runtime = FakeNode([own, shared]), Runtime()
    manager = cpu_manager(node, MemoryStore())
    statuses = {"shared": {"app": RUNNING}, "own": {"app": ContainerStatus("2", RunState.RUNNING)}}

    manager.reconcile(statuses, runtime)
    assert runtime.updates == [("2", cpus("0-3")), ("id", cpus("0-3"))]
    manager.allocate(own, own.containers[0])
    manager.reconcile(statuses, runtime)
    assert runtime.updates[2:] == [("2", cpus("1-2")), ("id", cpus("0,3"))]
    done = manager.reconcile(statuses, runtime)
    assert len(runtime.updates) == 4
    assert done.failure == []

    node.pods = [shared]  # the other pod is gone: reconciliation returns its CPUs first
    manager.reconcile(statuses, runtime)
    assert runtime.updates[4:] == [("id", cpus("0-3"))]
    assert manager.state.containers == {}


def test_a_container_without_any_cpu_is_not_updated() -> None:
    own, shared = pod(container(cpu=3), uid="own"), pod(container(cpu=0.5), uid="shared")
    manager, runtime = (
        cpu_manager(FakeNode([shared, own]), MemoryStore(), is_strict=True),
        Runtime(),
    )
    manager.allocate(own, own.containers[0])

    done = manager.reconcile({"shared": {"app": RUNNING}}, runtime)

    assert manager.state.default == frozenset()
    assert done.failure == [("shared", "app", "id"), ("own", "", "")]
    assert runtime.updates == []
