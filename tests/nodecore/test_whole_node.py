"""A node with all managers: no double allocation, full release, unchanged by a restart."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.cpusets import EMPTY
from bindery.nodecore.devices.calls import PluginOptions
from bindery.nodecore.devices.state import Device
from bindery.nodecore.errors import StateError
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import Container, Pod
from tests.nodecore import answering
from tests.nodecore.nodes import MIB, FakeNode, container, pod

GPU = "vendor.com/gpu"
CONFIG = NodeConfig(
    uniform(sockets=2, cores_per_numa=4, threads_per_core=2, memory_bytes_per_numa=1000 * MIB),
    {"cpu": 16000, "memory": 2000 * MIB},
    system_reserved={"cpu": 1000, "memory": 200 * MIB},
    cpu_policy="static",
    memory_policy="Static",
    reserved_memory=[(0, {"memory": 100 * MIB}), (1, {"memory": 100 * MIB})],
)


class Machine:
    """A node whose agent can be started again on the same files."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.files = CheckpointManager(MemoryStore())
        self.node = FakeNode()
        self.start()

    def start(self) -> None:
        self.of = ContainerManager(self.config, self.node, self.files, self.files, lambda: 0.0)
        assert self.of.start({}) is None
        self.of.devices.register(GPU, PluginOptions(prefers=True))
        self.of.devices.update(GPU, [Device(f"gpu-{one}", (one % 2,)) for one in range(4)])

    def admit(self, asking: Pod, prefer: Callable[[list[str]], Iterable[str]]) -> None:
        """Admit a pod; its plugins prefer some of the available devices, and answer or fail."""
        self.node.pods.append(asking)
        is_admitted = self.of.admit(asking).admit
        while is_admitted and (question := self.of.devices.question(asking.uid)) is not None:
            self.of.devices.prefer(question, prefer(sorted(question.available)))
            is_admitted = self.of.admit_again(asking).admit
            assert is_admitted
        if is_admitted:
            answering.answer(self.of.devices, asking.uid)
        else:
            self.node.pods.remove(asking)
            self.collect()

    def remove(self, uid: str) -> None:
        self.node.pods = [one for one in self.node.pods if one.uid != uid]
        self.collect()

    def collect(self) -> None:
        for manager in (self.of.cpu, self.of.memory, self.of.devices):
            manager.remove_stale_state()

    def states(self) -> tuple[object, ...]:
        return self.of.cpu.state, self.of.memory.state, self.of.devices.state.held

    def has_lost_group(self) -> bool:
        """Return whether a NUMA node is in a memory group that no container has any more."""
        state = self.of.memory.state
        groups = {
            block.numa_nodes
            for inner in state.containers.values()
            for blocks in inner.values()
            for block in blocks
        }
        return any(
            node.assignments and tuple(node.cells) not in groups for node in state.machine.values()
        )

    def check(self) -> None:
        cpu = self.of.cpu.state
        owned = [EMPTY.union(*inner.values()) for inner in cpu.containers.values()]
        assert not any(one & other for one, other in combinations([*owned, cpu.default], 2))
        assert cpu.default.union(*owned) == frozenset(range(16))
        for state in self.of.memory.state.machine.values():
            for table in state.memory.values():
                assert table.reserved + table.free == table.allocatable
                assert table.free >= 0
        held = [
            frozenset[str]().union(*(one.ids for inner in of.values() for one in inner.values()))
            for of in self.of.devices.state.held.values()
        ]
        assert not any(one & other for one, other in combinations(held, 2))


@st.composite
def containers(draw: st.DrawFn, name: str, *, is_init: bool = False) -> Container:
    made = container(
        name,
        draw(st.sampled_from([1, 2, 3, 4, 1.5, 9])),
        draw(st.sampled_from([100, 300, 700, 1100])),
        is_sidecar=is_init and draw(st.booleans()),
    )
    gpus = draw(st.sampled_from([0, 0, 1, 2]))
    amounts = {**made.limits, GPU: gpus} if gpus else made.limits
    return replace(made, requests=amounts, limits=amounts)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    init = [draw(containers(f"init{n}", is_init=True)) for n in range(draw(st.integers(0, 2)))]
    apps = [draw(containers(f"app{n}")) for n in range(draw(st.integers(1, 2)))]
    return pod(*apps, uid=uid, init=init)


configs = st.builds(
    replace,
    st.just(CONFIG),
    topology_policy=st.sampled_from(["none", "restricted", "single-numa-node"]),
    topology_scope=st.sampled_from(["container", "pod"]),
    cpu_options=st.sampled_from(
        [{}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}]
    ),
)


@given(configs, st.data())
def test_nothing_is_allocated_twice_and_a_restart_changes_nothing(
    config: NodeConfig, data: st.DataObject
) -> None:
    machine = Machine(config)
    empty = machine.states()
    for number in range(data.draw(st.integers(1, 6))):
        machine.admit(
            data.draw(pods(f"pod{number}")),
            lambda available: data.draw(st.sets(st.sampled_from(available))),
        )
        machine.check()
        if bool(machine.node.pods) and data.draw(st.booleans()):
            machine.remove(data.draw(st.sampled_from([one.uid for one in machine.node.pods])))
            machine.check()
        if machine.has_lost_group():  # as in the kubelet: a refused pod can leave one behind
            with pytest.raises(StateError):
                machine.start()
            return
        before = machine.states()
        machine.start()
        machine.collect()  # devices of pods that are gone leave the file with the next write
        assert machine.states() == before

    machine.node.pods = []
    machine.collect()
    assert machine.states() == empty
