"""Admission: the kubelet's checks in its order, with its messages."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bindery.nodecore.admission import sysctls
from bindery.nodecore.admission.chain import Managers, admit, checks
from bindery.nodecore.admission.facts import Candidate, NodeCondition, NodeFacts
from bindery.nodecore.admission.preemption import NoVictimsError, victims
from bindery.nodecore.admission.result import ADMITTED, Admission, refused
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.cpu.manager import CpuManager
from bindery.nodecore.cpu.options import CpuOptions
from bindery.nodecore.cpu.static import SmtAlignmentError, new_policy
from bindery.nodecore.cpu.topology import discover
from bindery.nodecore.errors import AllocationError, ConfigurationError, StateError
from bindery.nodecore.machine import uniform
from bindery.nodecore.memory.manager import MemoryManager
from bindery.nodecore.memory.static import StaticMemoryPolicy
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology.manager import TopologyManager
from tests.nodecore.nodes import MIB, CountingStore, FakeNode, container, pod

CRITICAL = 2_000_000_000
ALLOCATABLE = {"cpu": 4000, "memory": 1000 * MIB, "pods": 3, "vendor.com/gpu": 2}
NODE = NodeFacts("node", ALLOCATABLE, allowed_sysctls=("net.core.somaxconn", "kernel.msg*"))
SMALL = Candidate(pod(container(cpu=1, memory_mib=100)))
BEST_EFFORT = Candidate(pod(Container("app"), uid="best-effort"))


def managers(stopped: list[str] | None = None, **changes: Any) -> Managers:
    def stop(candidate: Candidate) -> None:
        (stopped if stopped is not None else []).append(candidate.pod.uid)

    parts = {"admit": lambda _: ADMITTED, "sanitized": lambda _, has: has, "stop": stop}
    return Managers(**{**parts, **changes})


def decided(candidate: Candidate, node: NodeFacts = NODE, of: Managers | None = None) -> Admission:
    return admit(candidate, node, checks(of or managers()))


def running(uid: str, cpu: float, memory_mib: int = 100, **facts: Any) -> Candidate:
    return Candidate(pod(container(cpu=cpu, memory_mib=memory_mib), uid=uid), **facts)


@pytest.mark.parametrize(
    ("candidate", "node", "reason", "message"),
    [
        (
            BEST_EFFORT,
            replace(NODE, conditions=[NodeCondition.MEMORY_PRESSURE]),
            "Evicted",
            "The node had condition: [MemoryPressure]. ",
        ),
        (
            SMALL,
            replace(NODE, conditions=[NodeCondition.DISK_PRESSURE, NodeCondition.PID_PRESSURE]),
            "Evicted",
            "The node had condition: [DiskPressure PIDPressure]. ",
        ),
        (
            replace(SMALL, sysctls=("kernel.sem",)),
            NODE,
            "SysctlForbidden",
            'forbidden sysctl: "kernel.sem" not allowlisted',
        ),
        (
            replace(SMALL, labels={"kubernetes.io/os": "windows"}),
            NODE,
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
        (
            replace(SMALL, os="windows"),
            NODE,
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            replace(SMALL, strict_supplemental_groups=True),
            replace(NODE, has_supplemental_groups=False),
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
        (
            running("large", 5),
            NODE,
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000",
        ),
        (
            running("large", 1, 600),
            replace(NODE, pods=(running("other", 1, 600),)),
            "OutOfmemory",
            (
                f"Node didn't have enough resource: memory, requested: {600 * MIB}, "
                f"used: {600 * MIB}, capacity: {1000 * MIB}"
            ),
        ),
        (
            SMALL,
            replace(NODE, pods=[BEST_EFFORT] * 3),
            "OutOfpods",
            "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
        ),
        (
            Candidate(pod(Container("app", {"vendor.com/gpu": 3}))),
            NODE,
            "OutOfvendor.com/gpu",
            "Node didn't have enough resource: vendor.com/gpu, requested: 3, used: 0, capacity: 2",
        ),
        (
            replace(SMALL, matches_node_affinity=False),
            NODE,
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        (
            replace(SMALL, node_name="other"),
            NODE,
            "NodeName",
            "Predicate NodeName failed: node(s) didn't match the requested node name",
        ),
        (
            replace(SMALL, host_ports=[("10.0.0.1", "TCP", 80)]),
            replace(NODE, pods=[replace(BEST_EFFORT, host_ports=[("", "TCP", 80)])]),
            "NodePorts",
            (
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod "
                "ports"
            ),
        ),
        (
            replace(SMALL, tolerates_no_execute=False),
            NODE,
            "TaintToleration",
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        ),
        (
            SMALL,
            replace(NODE, app_armor_error="not enabled"),
            "AppArmor",
            "Cannot enforce AppArmor: not enabled",
        ),
        (
            replace(SMALL, required_features=("A", "B", "C")),
            replace(NODE, declared_features=("C", "D")),
            "PodFeatureUnsupported",
            "Pod requires node features that are not available: A, B",
        ),
        (
            SMALL,
            replace(NODE, is_shutting_down=True),
            "NodeShutdown",
            "Pod was rejected as the node is shutting down.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_pods_are_refused_with_the_kubelets_messages(
    candidate: Candidate, node: NodeFacts, reason: str, message: str
) -> None:
    assert decided(candidate, node) == Admission(False, reason, message)


@pytest.mark.parametrize(
    ("candidate", "node"),
    [
        (SMALL, NODE),
        (SMALL, replace(NODE, conditions=[NodeCondition.MEMORY_PRESSURE])),
        (
            replace(BEST_EFFORT, tolerates_memory_pressure=True),
            replace(NODE, conditions=[NodeCondition.MEMORY_PRESSURE]),
        ),
        (replace(SMALL, is_static=True), replace(NODE, conditions=[NodeCondition.DISK_PRESSURE])),
        (replace(SMALL, sysctls=("kernel.msgmax", "net/core/somaxconn")), NODE),
        (Candidate(pod(Container("app", {"other.com/thing": 9}))), NODE),  # unknown to the node
        (replace(SMALL, is_static=True, tolerates_no_execute=False), NODE),
        (replace(SMALL, is_pending=False), replace(NODE, app_armor_error="not enabled")),
        (
            replace(SMALL, host_ports=[("10.0.0.1", "TCP", 80)]),
            replace(NODE, pods=[replace(BEST_EFFORT, host_ports=[("10.0.0.2", "TCP", 80)])]),
        ),
    ],
)
def test_pods_that_pass_the_checks_are_admitted(candidate: Candidate, node: NodeFacts) -> None:
    assert decided(candidate, node) == ADMITTED


def test_the_first_refusal_is_returned() -> None:
    late = replace(NODE, is_shutting_down=True)
    topology = Admission(False, "TopologyAffinityError", "no")

    assert decided(running("large", 5), late).reason == "OutOfcpu"
    assert decided(running("large", 5), late, managers(admit=lambda _: topology)) == topology
    assert (
        decided(replace(SMALL, sysctls=("kernel.sem",)), late, managers(admit=lambda _: topology))
    ).reason == "SysctlForbidden"


def test_devices_held_by_containers_are_counted_after_a_restart() -> None:
    wanted = Candidate(pod(Container("app", {"vendor.com/gpu": 3})))

    def sanitized(uid: str, has: Mapping[str, int]) -> dict[str, int]:
        return {**has, "vendor.com/gpu": 3}

    def broken(uid: str, has: Mapping[str, int]) -> dict[str, int]:
        raise StateError("of a reason")

    assert decided(wanted, NODE, managers(sanitized=sanitized)) == ADMITTED
    assert decided(wanted, NODE, managers(sanitized=broken)).message == (
        "Update plugin resources failed due to of a reason, which is unexpected."
    )


def test_a_critical_pod_evicts_others_to_fit() -> None:
    stopped: list[str] = []
    node = replace(NODE, pods=(running("first", 2), running("second", 1, 300)))
    critical = Candidate(replace(pod(container(cpu=2), uid="critical"), priority=CRITICAL))

    assert decided(critical, node, managers(stopped)) == ADMITTED
    assert stopped == ["first"]  # each would be enough; this one asks for less memory
    assert decided(replace(critical, pod=pod(container(cpu=2))), node).reason == "OutOfcpu"


def test_a_critical_pod_that_fits_after_no_eviction_is_refused() -> None:
    node = replace(NODE, pods=(running("first", 2, is_static=True),))
    critical = Candidate(replace(pod(container(cpu=3), uid="critical"), priority=CRITICAL))

    assert decided(critical, node) == Admission(
        False,
        "UnexpectedAdmissionError",
        "Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 1000), ]",
    )
    assert decided(replace(critical, matches_node_affinity=False), node).reason == "NodeAffinity"


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ({"cpu": 500}, ["burstable"]),  # one pod is enough, and none of a higher class
        ({"cpu": 1500}, ["burstable", "guaranteed"]),
        ({"pods": 1}, ["best-effort"]),
        ({"memory": 250 * MIB}, ["large"]),
        ({"cpu": 3000, "memory": 400 * MIB}, ["burstable", "large", "guaranteed"]),
    ],
)
def test_pods_of_the_lowest_qos_class_are_evicted_first(
    missing: dict[str, int], expected: list[str]
) -> None:
    burstable = Candidate(pod(Container("app", {"cpu": 1000}), uid="burstable"))
    pods = [BEST_EFFORT, burstable, running("guaranteed", 1), running("large", 1, 300)]
    critical = replace(SMALL, is_static=True)

    assert sorted(one.pod.uid for one in victims(critical, pods, missing)) == sorted(expected)


def test_only_pods_of_lower_priority_are_evicted() -> None:
    high, low = (
        Candidate(replace(pod(container(), uid=uid), priority=priority))
        for uid, priority in (("high", 10), ("low", 1))
    )

    assert victims(high, [low], {"cpu": 1}) == [low]
    with pytest.raises(NoVictimsError):
        victims(low, [high], {"cpu": 1})


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("net.core.somaxconn", {}, None),
        ("net.core.somaxconn", {"host_network": True}, "not allowed with host Net enabled"),
        ("kernel.msgmni", {"host_ipc": True}, "not allowed with host IPC enabled"),
        ("kernel.msgmni", {"host_network": True}, None),
        ("net.core.other", {}, '"net.core.other" not allowlisted'),
    ],
)
def test_sysctls_require_their_kernel_namespace(
    name: str, facts: dict[str, bool], expected: str | None
) -> None:
    shared = {"host_network": False, "host_ipc": False, **facts}
    found = sysctls.refusal(name, NODE.allowed_sysctls, **shared)

    assert (found is None) == (expected is None)
    assert expected is None or expected in (found or "")


def test_sysctls_without_a_namespace_cannot_be_allowed() -> None:
    sysctls.check_allowlist(sysctls.SAFE)

    with pytest.raises(ConfigurationError, match='swappiness" are not known to be namespaced'):
        sysctls.check_allowlist(["vm.swappiness"])


def test_errors_of_managers_become_refusals() -> None:
    assert refused(SmtAlignmentError("text")) == Admission(False, "SMTAlignmentError", "text")
    assert refused(AllocationError("text")) == Admission(
        False, "UnexpectedAdmissionError", "Allocate failed due to text, which is unexpected"
    )


class Whole:
    """A node with all managers."""

    def __init__(self, policy: str, scope: str = "container") -> None:
        machine = uniform(sockets=2, cores_per_numa=4, memory_bytes_per_numa=1000 * MIB)
        self.node = FakeNode()
        self.topology = TopologyManager(machine.nodes, policy, scope)
        files = CheckpointManager(CountingStore())
        options = CpuOptions(full_pcpus_only=True)
        cpu_policy = new_policy(discover(machine), 1, options=options)
        memory_policy = StaticMemoryPolicy(machine, {0: {"memory": 100 * MIB}})
        self.cpu = CpuManager(cpu_policy, self.node, self.topology, files)
        self.memory = MemoryManager(memory_policy, self.node, self.topology, files)
        self.cpu.start({})
        self.memory.start({})
        self.topology.add_provider(self.cpu)
        self.topology.add_provider(self.memory)

    def admit(self, asking: Pod) -> Admission:
        self.node.pods.append(asking)
        found = self.topology.admit(asking)
        if not found.admit:
            self.node.pods.remove(asking)
        return found


def test_single_numa_node_refuses_pods_that_fit_no_numa_node() -> None:
    of = Whole("single-numa-node")

    assert of.admit(pod(container(cpu=4), uid="fits")).admit
    assert of.admit(pod(container(cpu=4), uid="none")) == Admission(
        False, "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
    )
    assert of.admit(pod(container(cpu=3), uid="rest")).admit  # one CPU is reserved


def test_the_pod_scope_keeps_all_containers_together() -> None:
    two = pod(container("a", 2), container("b", 2), uid="pod")
    three = pod(container("a", 3), container("b", 2), uid="other")

    of = Whole("single-numa-node", "pod")

    assert of.admit(two).admit
    assert of.topology.affinity("pod", "a") == of.topology.affinity("pod", "b")
    assert of.admit(three).reason == "TopologyAffinityError"
    assert Whole("single-numa-node").admit(three).admit


def test_best_effort_admits_without_locality() -> None:
    assert Whole("best-effort").admit(pod(container(cpu=6))).admit
    assert Whole("none").admit(pod(container(cpu=6))).admit
    assert not Whole("none").admit(pod(container(cpu=8))).admit


def test_allocations_of_a_refused_pod_are_released_by_the_next_allocation() -> None:
    of = Whole("single-numa-node")
    split = pod(container("a", 3), container("b", 5), uid="split")

    assert of.admit(split).reason == "TopologyAffinityError"
    assert "split" in of.cpu.state.containers
    assert of.admit(pod(container(cpu=1), uid="next")).admit
    assert set(of.cpu.state.containers) == set(of.memory.state.containers) == {"next"}


def test_a_decision_is_deleted_with_its_last_container() -> None:
    of = Whole("single-numa-node")
    asking = pod(container(cpu=1))
    of.admit(asking)
    of.topology.add_container(asking, asking.containers[0], "first")
    of.topology.add_container(asking, asking.containers[0], "restarted")

    of.topology.remove_container("first")
    assert of.topology.affinity("pod", "app").mask is not None
    of.topology.remove_container("restarted")
    of.topology.remove_container("unknown")
    assert of.topology.affinity("pod", "app").mask is None
