"""Pods in any order of plan, answer, failure and end: nothing is held twice, all comes back."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from bindery.nodeagent.admission import PodAdmission
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.admission.result import refused
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.cpusets import EMPTY
from bindery.nodecore.devices.calls import PluginOptions
from bindery.nodecore.devices.state import Device
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import Container, Pod

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
CONFIG = NodeConfig(
    uniform(sockets=2, cores_per_numa=4, memory_bytes_per_numa=1 << 30),
    {"cpu": 8000, "memory": 2 << 30},
    kube_reserved={"cpu": 1000},
    cpu_policy="static",
    topology_policy="restricted",
)
ALLOCATABLE = {"cpu": 7000, "memory": 2 << 30, "pods": 10, GPU: 4, NIC: 2}


class Node:
    """A node with two resources of plugins, one of which has preferences."""

    def __init__(self) -> None:
        self.pods = PodAdmission("node", None)
        files = CheckpointManager(MemoryStore())
        self.manager = ContainerManager(CONFIG, self.pods, files, files, lambda: 0.0)
        self.pods.use(self.manager)
        self.manager.start()
        self.pods.ready()
        devices = self.manager.devices
        devices.register(GPU, PluginOptions(prefers=True))
        devices.update(GPU, [Device(f"gpu-{one}", (one % 2,)) for one in range(4)])
        devices.register(NIC)
        devices.update(NIC, [Device(f"nic-{one}", (one,)) for one in range(2)])

    def step(self, uid: str) -> None:
        """Answer what the pod waits for next."""
        devices = self.manager.devices
        question = devices.question(uid)
        if question is not None:
            devices.prefer(question, sorted(question.available)[-1:])
            assert self.pods.plan_again(uid).admit
            return
        calls = devices.calls(uid)
        if calls:
            devices.record({calls[0]: b"answer"})
        elif self.pods.candidate(uid) is not None:
            self.pods.confirm(uid)

    def check(self) -> None:
        state = self.manager.cpu.state
        owned = [EMPTY.union(*inner.values()) for inner in state.containers.values()]
        assert not any(one & other for one, other in combinations([*owned, state.default], 2))
        for resource in (GPU, NIC):
            held = [
                frozenset[str]().union(*(i[resource].ids for i in of.values() if resource in i))
                for of in self.manager.devices.state.held.values()
            ]
            assert not any(one & other for one, other in combinations(held, 2))


@st.composite
def candidates(draw: st.DrawFn, uid: str) -> Candidate:
    def container(name: str) -> Container:
        amounts = {"cpu": 1000 * draw(st.integers(1, 3)), "memory": 1 << 20}
        for resource in (GPU, NIC):
            amounts |= {resource: count} if (count := draw(st.integers(0, 2))) else {}
        return Container(name, amounts, amounts)

    init = [container("init")] if draw(st.booleans()) else []
    apps = [container(f"app-{one}") for one in range(draw(st.integers(1, 2)))]
    return Candidate(Pod(uid, apps, init, name=uid), node_name="node")


@given(st.data())
def test_nothing_is_held_twice_and_all_comes_back(data: st.DataObject) -> None:
    node = Node()
    uids = [f"pod-{one}" for one in range(5)]
    for _ in range(data.draw(st.integers(1, 25))):
        uid = data.draw(st.sampled_from(uids))
        action = data.draw(st.sampled_from(["plan", "step", "step", "step", "fail", "release"]))
        if action == "plan":
            node.pods.plan(data.draw(candidates(uid)), ALLOCATABLE)
        elif action == "step":
            node.step(uid)
        elif action == "fail" and node.pods.answer(uid) is None:
            node.pods.refuse(uid, refused(AllocationError("no answer")))
        elif action == "release":
            node.pods.release(uid)
        node.check()

    for uid in uids:
        node.pods.release(uid)
    assert node.manager.devices.state.held == {}
    assert node.manager.cpu.state.containers == {}
    assert len(node.manager.devices.state.available(GPU)) == 4
