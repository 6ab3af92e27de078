"""Admission by the kubelet of a hollow node, called as the agent calls it; no server."""

from pathlib import Path

import msgspec
import pytest

from bindery.kube.objects.watched import Node, Taint
from bindery.nodeagent import held
from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodecore.admission.result import Admission
from tests.nodeagent.numashapes import SETTINGS, one_node, pod, seen


class Ground:
    """The kubelet of one node."""

    def __init__(
        self,
        node: ManagedNode,
        *,
        checkpoints: Path | None = None,
        taints: tuple[Taint, ...] = (),
        pods: tuple[AgentPod, ...] = (),
    ) -> None:
        self.node, self.taints = node, taints
        self.complaints: list[str] = []
        self.changes = 0
        self.kubelets = Kubelets(
            node_object=self._seen,
            changed=self._changed,
            complain=lambda _node, problem: self.complaints.append(problem),
            clock=lambda: 0.0,
            checkpoints=checkpoints,
        )
        self.problem = self.kubelets.prepare(node)
        if self.problem is None:
            self.kubelets.open(node, pods)

    def admit(self, one: AgentPod) -> Admission:
        return self.kubelets.admit(self.node, one)

    def held(self, name: str) -> held.Held:
        text = self.kubelets.held(self.node, f"uid-{name}")
        return held.decode(text) if text is not None else {}

    def cpus(self, name: str) -> str:
        found = self.held(name).get("main")
        return "" if found is None else found.cpus

    def release(self, name: str) -> None:
        self.kubelets.release(self.node.name, f"uid-{name}")

    def _seen(self, node: ManagedNode) -> Node:
        return seen(node, *self.taints)

    def _changed(self, node: ManagedNode) -> None:
        assert node is self.node
        self.changes += 1


WHOLE_ZONE = {"cpu": "14", "memory": "8Gi"}


def test_a_pod_that_fits_no_zone_is_refused_with_the_message_of_the_topology_manager() -> None:
    ground = Ground(one_node())

    answer = ground.admit(pod("a", {"cpu": "20", "memory": "1Gi"}))

    assert answer == Admission(
        False, "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
    )


def test_zones_fill_up_and_are_freed_when_a_pod_ends() -> None:
    ground = Ground(one_node())

    assert ground.admit(pod("a", WHOLE_ZONE)).admit
    assert ground.admit(pod("b", WHOLE_ZONE)).admit
    assert {ground.cpus("a"), ground.cpus("b")} == {"1-7,17-23", "8-14,24-30"}
    assert ground.admit(pod("c", {"cpu": "4", "memory": "1Gi"})).reason == "TopologyAffinityError"

    ground.release("a")

    assert ground.admit(pod("d", WHOLE_ZONE)).admit


def test_the_decision_about_a_pod_is_final() -> None:
    ground = Ground(one_node())
    ground.admit(pod("a", WHOLE_ZONE))
    ground.admit(pod("b", WHOLE_ZONE))
    refused = ground.admit(pod("c", WHOLE_ZONE))

    ground.release("a")

    assert ground.admit(pod("c", WHOLE_ZONE)) == refused
    assert ground.admit(pod("b", WHOLE_ZONE)).admit


@pytest.mark.parametrize(
    ("keys", "first", "second", "reason", "message"),
    [
        (
            {},
            {"cpu": "40"},
            {"cpu": "30"},
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 30000, used: 40000, capacity: 64000",
        ),
        ({}, {"memory": "512Gi"}, {"memory": "1"}, "OutOfmemory", "memory"),
        ({"pods": 1}, {}, {}, "OutOfpods", "pods, requested: 1, used: 1, capacity: 1"),
        ({"resources": {"rdma/hca": 1}}, {"rdma/hca": "1"}, {"rdma/hca": "1"}, "OutOfrdma/hca", ""),
        (
            {},
            {"nvidia.com/gpu": "8"},
            {"nvidia.com/gpu": "1"},
            "UnexpectedAdmissionError",
            "unavailable for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
        ),
    ],
)
def test_a_node_without_numa_keys_refuses_what_does_not_fit(
    keys: dict[str, object],
    first: dict[str, str],
    second: dict[str, str],
    reason: str,
    message: str,
) -> None:
    plain = {"cpu": 64, "memory": "512Gi", "gpus": 8, "numa": None, "kubelet": None}
    ground = Ground(one_node(**{**plain, **keys}))

    assert ground.admit(pod("a", first)).admit
    answer = ground.admit(pod("b", second))

    assert answer.reason == reason
    assert message in answer.message


def test_a_node_refuses_pods_that_do_not_match_or_tolerate_it() -> None:
    ground = Ground(one_node(), taints=(Taint(key="k", effect="NoExecute"),))

    toleration = [{"key": "k", "operator": "Exists"}]
    assert ground.admit(pod("a")).reason == "TaintToleration"
    assert ground.admit(pod("b", tolerations=toleration)).admit
    mismatch = pod("c", tolerations=toleration, nodeSelector={"rack": "r9"})
    assert ground.admit(mismatch).reason == "NodeAffinity"


def test_two_pods_cannot_have_the_same_port_of_the_node() -> None:
    ground = Ground(one_node())
    containers = [{"name": "main", "ports": [{"hostPort": 8080}]}]

    assert ground.admit(pod("a", containers=containers)).admit
    assert ground.admit(pod("b", containers=containers)).reason == "NodePorts"


def test_sidecars_take_ports_of_the_node_and_other_init_containers_do_not() -> None:
    ground = Ground(one_node())
    port = {"name": "init", "ports": [{"hostPort": 8080}]}
    sidecar = {**port, "restartPolicy": "Always"}

    assert ground.admit(pod("a", initContainers=[port])).admit
    assert ground.admit(pod("b", initContainers=[sidecar])).admit
    assert ground.admit(pod("c", initContainers=[sidecar])).reason == "NodePorts"
    assert ground.admit(pod("d", initContainers=[port])).admit


def test_extended_resources_served_by_a_claim_are_not_counted_on_the_node() -> None:
    ground = Ground(one_node(gpus=0))
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r"}
    claimed = {"resourceClaimName": "c", "requestMappings": [mapping]}
    one = pod("a", {"nvidia.com/gpu": "9"})

    status = {"phase": "Pending", "extendedResourceClaimStatus": claimed}
    served = msgspec.convert({**msgspec.to_builtins(one), "status": status}, AgentPod)

    assert ground.admit(served).admit


def test_a_critical_pod_evicts_others() -> None:
    plain = {"cpu": 64, "memory": "512Gi", "gpus": 0, "numa": None, "kubelet": None}
    ground = Ground(one_node(**plain))
    ground.admit(pod("a", {"cpu": "60"}))

    assert ground.admit(pod("system", {"cpu": "10"}, priority=2_000_001_000)).admit

    assert ground.kubelets.stopped(ground.node) == ["uid-a"]
    assert ground.admit(pod("a", {"cpu": "60"})).reason == "Preempting"


def test_full_pcpus_only_refuses_half_cores() -> None:
    settings = {**SETTINGS, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    ground = Ground(one_node(kubelet=settings))

    answer = ground.admit(pod("a", {"cpu": "3", "memory": "1Gi"}))

    assert answer.reason == "SMTAlignmentError"
    assert ground.admit(pod("b", {"cpu": "4", "memory": "1Gi"})).admit


def restarted(ground: Ground, pods: tuple[AgentPod, ...]) -> Ground:
    return Ground(ground.node, pods=pods)


def running(ground: Ground, name: str, limits: dict[str, str]) -> AgentPod:
    text = ground.kubelets.held(ground.node, f"uid-{name}")
    assert text is not None
    return pod(name, limits, phase="Running", annotations={held.ANNOTATION: text})


def test_without_files_pods_hold_the_same_after_a_restart() -> None:
    ground = Ground(one_node())
    small = {"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"}
    for name in ("a", "b", "c"):
        assert ground.admit(pod(name, small)).admit
    ground.release("a")
    before = {name: ground.held(name) for name in ("b", "c")}
    assert before["b"]["main"].devices == {"nvidia.com/gpu": {0: ["gpu-1"]}}

    after = restarted(ground, tuple(running(ground, name, small) for name in ("c", "b")))

    assert not after.complaints
    assert {name: after.held(name) for name in ("b", "c")} == before
    # What has been released is free, and nothing else.
    assert after.admit(pod("d", small)).admit
    assert ground.admit(pod("d", small)).admit
    assert after.held("d") == ground.held("d")


def test_records_that_contradict_the_machine_are_dropped_and_logged() -> None:
    ground = Ground(one_node())
    small = {"cpu": "2", "memory": "3Gi"}
    ground.admit(pod("a", small))
    first = running(ground, "a", small)

    smaller = one_node(cpu=8, kubelet={**SETTINGS, "reservedSystemCPUs": "0,4"})
    for text in (first.metadata.annotations[held.ANNOTATION].replace("17", "99"), "nonsense"):
        broken = pod("a", small, phase="Running", annotations={held.ANNOTATION: text})
        after = Ground(smaller, pods=(broken,))

        assert len(after.complaints) == 1
        assert after.cpus("a") not in ("", ground.cpus("a"))
        record = after.kubelets.new_record(smaller, broken)
        assert record is not None
        assert held.decode(record) == after.held("a")
        assert after.kubelets.new_record(smaller, running(after, "a", small)) is None


def test_with_files_pods_hold_the_same_after_a_restart(tmp_path: Path) -> None:
    ground = Ground(one_node(), checkpoints=tmp_path)
    small = {"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"}
    for name in ("a", "b"):
        assert ground.admit(pod(name, small)).admit
    ground.release("a")
    before = ground.held("b")

    after = Ground(ground.node, checkpoints=tmp_path, pods=(pod("b", small, phase="Running"),))

    assert after.held("b") == before
    assert sorted(path.name for path in tmp_path.rglob("*_*")) == [
        "cpu_manager_state",
        "kubelet_internal_checkpoint",
        "memory_manager_state",
    ]


def test_resources_of_a_deleted_pod_are_released_at_startup(tmp_path: Path) -> None:
    ground = Ground(one_node(), checkpoints=tmp_path)
    ground.admit(pod("a", WHOLE_ZONE))
    ground.admit(pod("b", WHOLE_ZONE))

    after = Ground(ground.node, checkpoints=tmp_path, pods=(pod("b", WHOLE_ZONE),))

    assert after.admit(pod("c", WHOLE_ZONE)).admit


@pytest.mark.parametrize("file", ["cpu_manager_state", "memory_manager_state"])
def test_a_wrong_checksum_prevents_the_kubelet_from_starting(tmp_path: Path, file: str) -> None:
    node = one_node()
    Ground(node, checkpoints=tmp_path)
    path = tmp_path / node.name / file
    path.write_bytes(path.read_bytes().replace(b'"checksum":', b'"checksum":1'))

    problem = Ground(node, checkpoints=tmp_path).problem

    assert problem is not None
    assert "could not restore state from checkpoint: checkpoint is corrupted" in problem
    assert f'checkpoint file "{file}" before restarting Kubelet' in problem


def test_a_wrong_checksum_of_the_devices_loses_only_their_state(tmp_path: Path) -> None:
    node = one_node()
    Ground(node, checkpoints=tmp_path)
    path = tmp_path / node.name / "device-plugins" / "kubelet_internal_checkpoint"
    path.write_bytes(path.read_bytes().replace(b'"Checksum":', b'"Checksum":1'))

    ground = Ground(node, checkpoints=tmp_path)

    assert ground.problem is None
    assert ground.complaints == ["the state of devices is lost: checkpoint is corrupted"]
    assert ground.admit(pod("a", {"nvidia.com/gpu": "1"})).admit


def test_a_policy_other_than_the_files_prevents_the_kubelet_from_starting(tmp_path: Path) -> None:
    Ground(one_node(), checkpoints=tmp_path)
    other = one_node(kubelet={**SETTINGS, "cpuManagerPolicy": "none"})

    problem = Ground(other, checkpoints=tmp_path).problem

    assert problem is not None
    assert 'configured policy "none" differs from state checkpoint policy "static"' in problem


def test_running_pods_are_admitted_before_older_pending_pods() -> None:
    old = pod("old", WHOLE_ZONE)
    young = [pod(name, WHOLE_ZONE, phase="Running") for name in ("x", "y")]

    ground = Ground(one_node(), pods=(old, *young))

    assert [ground.admit(one).admit for one in (old, *young)] == [False, True, True]


def test_a_refused_pod_holds_no_resources() -> None:
    ground = Ground(one_node())
    kubelet = ground.kubelets.kubelet("hollow-0")
    assert kubelet is not None
    before = kubelet.manager.cpu.state, kubelet.manager.memory.state, kubelet.manager.devices.state

    # The topology manager gives it CPUs before it is found that it does not match the node.
    refused = pod("a", {"cpu": "2", "memory": "1Gi"}, nodeSelector={"rack": "r9"})
    assert not ground.admit(refused).admit

    assert before == (
        kubelet.manager.cpu.state,
        kubelet.manager.memory.state,
        kubelet.manager.devices.state,
    )


def test_a_full_disk_refuses_the_pod_and_does_not_stop_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(one_node(), checkpoints=tmp_path)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("bindery.nodecore.checkpoints.store.DirectoryStore.write", full)
        answer = ground.admit(pod("a", WHOLE_ZONE))

    assert answer.reason == "UnexpectedAdmissionError"
    assert "No space left on device" in answer.message
    assert ground.admit(pod("b", WHOLE_ZONE)).admit
