"""Zones of a node as the checkpoint files of its kubelet show them."""

from typing import Any

import pytest

from bindery.nodeagent import topologyreport
from bindery.nodeagent.hardware import HollowMachine, KubeletSettings, with_machine
from bindery.nodeagent.kubelet import HollowKubelet, Stores
from bindery.nodecore import pods
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import Pod
from tests.e2e.virtualnode.observed import FILES, ObservedKubelet

GIB = 1 << 30
SETTINGS = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "2Gi"},
    "reservedMemory": [{"numaNode": zone, "limits": {"memory": "1Gi"}} for zone in (0, 1)],
    "topologyManagerPolicy": "single-numa-node",
}


@pytest.fixture(scope="module")
def machine() -> HollowMachine:
    hardware = uniform(sockets=2, cores_per_numa=4, memory_bytes_per_numa=8 * GIB)
    capacity = pods.resources({"cpu": "8", "memory": "16Gi", "pods": "110"})
    return with_machine(hardware, capacity, KubeletSettings.model_validate(SETTINGS))


@pytest.fixture
def files() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def kubelet(machine: HollowMachine, files: MemoryStore) -> HollowKubelet:
    stores = Stores(CheckpointManager(files), CheckpointManager(MemoryStore()), outlive=True)
    kubelet = HollowKubelet("n", machine, stores, lambda: 0.0)
    kubelet.start((), {})
    kubelet.ready()
    return kubelet


def admitted(kubelet: HollowKubelet, uid: str, cpu: str) -> Pod:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
    pod = Pod.from_manifest(
        {
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {"containers": [container]},
        }
    )
    candidate = Candidate(pod=pod, node_name="n", is_pending=True)
    assert kubelet.admit(candidate, kubelet.machine.allocatable).admit
    return pod


def report(kubelet: topologyreport.Reported) -> dict[str, Any]:
    layout = topologyreport.layout_of(kubelet.machine.config)
    return dict(topologyreport.body(kubelet, layout, "uid-of-node"))


def test_the_report_from_the_files_equals_the_kubelets_own(
    machine: HollowMachine, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    running = [admitted(kubelet, "one", "2"), admitted(kubelet, "two", "3")]

    assert set(files.keys()) >= set(FILES)
    assert report(ObservedKubelet("n", machine, files.blobs, running)) == report(kubelet)


def test_resources_of_pods_that_do_not_run_are_free(
    machine: HollowMachine, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    """A kubelet clears its files when it admits the next pod, not when one ends."""
    admitted(kubelet, "ended", "2")
    running = admitted(kubelet, "two", "3")
    before = dict(files.blobs)
    kubelet.release("ended")

    assert files.blobs != before
    assert report(ObservedKubelet("n", machine, before, [running])) == report(kubelet)


def test_a_kubelet_without_files_has_allocated_nothing(
    machine: HollowMachine, kubelet: HollowKubelet
) -> None:
    assert report(ObservedKubelet("n", machine, {}, [])) == report(kubelet)


def test_zones_with_memory_allocated_as_a_group_are_reported(
    machine: HollowMachine, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    running = admitted(kubelet, "one", "2")

    observed = ObservedKubelet("n", machine, files.blobs, [running])

    assert sorted(observed.memory_groups) == [0, 1]
    assert ObservedKubelet("n", machine, files.blobs, []).memory_groups == (0, 0)


def test_a_corrupt_file_is_refused(machine: HollowMachine) -> None:
    corrupt = b'{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'

    with pytest.raises(NodeCoreError):
        ObservedKubelet("n", machine, {FILES[0]: corrupt}, [])
