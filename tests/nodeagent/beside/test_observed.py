"""Zones of a node as the checkpoint files of its kubelet show them."""

from dataclasses import replace
from typing import Any

import pytest

from bindery.api import numadetail
from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.api.numadetail import NumaDetail, PodZones
from bindery.nodeagent import topologyreport
from bindery.nodeagent.beside.observed import FILES, ObservedKubelet
from bindery.nodeagent.hardware import KubeletSettings, MachineSettings, with_machine
from bindery.nodeagent.kubelet import HollowKubelet, Stores
from bindery.nodecore import pods
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.devices.state import Device
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import Container, Pod

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
def machine() -> MachineSettings:
    hardware = uniform(sockets=2, cores_per_numa=4, memory_bytes_per_numa=8 * GIB)
    capacity = pods.resources({"cpu": "8", "memory": "16Gi", "pods": "110"})
    return with_machine(hardware, capacity, KubeletSettings.model_validate(SETTINGS))


@pytest.fixture
def files() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def kubelet(machine: MachineSettings, files: MemoryStore) -> HollowKubelet:
    stores = Stores(CheckpointManager(files), CheckpointManager(MemoryStore()), outlive=True)
    kubelet = HollowKubelet("n", machine, stores, lambda: 0.0)
    kubelet.start((), {})
    kubelet.ready()
    return kubelet


def admitted(kubelet: HollowKubelet, uid: str, cpu: str, memory: str = "1Gi") -> Pod:
    amounts = {"cpu": cpu, "memory": memory}
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


def detail(kubelet: topologyreport.Reported) -> NumaDetail:
    annotations = report(kubelet)["metadata"]["annotations"]
    return numadetail.decode(annotations[NUMA_DETAIL_ANNOTATION])


def test_the_report_from_the_files_equals_the_kubelets_own(
    machine: MachineSettings, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    running = [admitted(kubelet, "one", "2"), admitted(kubelet, "two", "3")]

    assert set(files.keys()) >= set(FILES)
    assert report(ObservedKubelet("n", machine, files.blobs, running)) == report(kubelet)


def test_resources_of_pods_that_do_not_run_are_free(
    machine: MachineSettings, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    """A kubelet clears its files when it admits the next pod, not when one ends."""
    admitted(kubelet, "ended", "2")
    running = admitted(kubelet, "two", "3")
    before = dict(files.blobs)
    kubelet.release("ended")

    assert files.blobs != before
    assert report(ObservedKubelet("n", machine, before, [running])) == report(kubelet)


def test_a_kubelet_without_files_has_allocated_nothing(
    machine: MachineSettings, kubelet: HollowKubelet
) -> None:
    assert report(ObservedKubelet("n", machine, {}, [])) == report(kubelet)


def test_zones_with_memory_allocated_as_a_group_are_reported(
    machine: MachineSettings, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    running = admitted(kubelet, "one", "2")

    with_pod = detail(ObservedKubelet("n", machine, files.blobs, [running]))
    without = detail(ObservedKubelet("n", machine, files.blobs, []))

    assert with_pod.memory_groups == {"node-0": ["node-0"]}
    assert without.memory_groups == {}


def test_a_corrupt_file_is_refused(machine: MachineSettings) -> None:
    corrupt = b'{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'

    with pytest.raises(NodeCoreError):
        ObservedKubelet("n", machine, {FILES[0]: corrupt}, [])


def test_the_parts_of_all_pods_are_together_the_use_of_the_zones(
    machine: MachineSettings, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    pods = [admitted(kubelet, "one", "2"), admitted(kubelet, "two", "3")]

    shown = report(ObservedKubelet("n", machine, files.blobs, pods))

    held = detail(ObservedKubelet("n", machine, files.blobs, pods)).held
    assert held == {
        "one": PodZones(held={"node-0": {"cpu": 2, "memory": GIB}}),
        "two": PodZones(held={"node-1": {"cpu": 3, "memory": GIB}}),
    }
    for zone in shown["zones"]:
        for resource in zone["resources"]:
            used = int(resource["allocatable"]) - int(resource["available"])
            parts = [each.held.get(zone["name"], {}) for each in held.values()]
            assert used == sum(part.get(resource["name"], 0) for part in parts)


def test_memory_on_two_zones_is_one_group_with_the_amounts_of_each(
    machine: MachineSettings, files: MemoryStore
) -> None:
    """The checkpoint has only the size of the block; 7 GiB of a zone are for pods."""
    config = replace(machine.config, topology_policy="best-effort")
    large = replace(machine, config=config)
    stores = Stores(CheckpointManager(files), CheckpointManager(MemoryStore()), outlive=True)
    kubelet = HollowKubelet("n", large, stores, lambda: 0.0)
    kubelet.start((), {})
    kubelet.ready()
    pod = admitted(kubelet, "wide", "2", memory="9Gi")

    found = detail(ObservedKubelet("n", large, files.blobs, [pod]))

    assert found.held is not None
    wide = found.held["wide"]
    assert wide.memory == [["node-0", "node-1"]]
    assert {name: part["memory"] // GIB for name, part in wide.held.items()} == {
        "node-0": 7,
        "node-1": 2,
    }
    both = ["node-0", "node-1"]
    assert found.memory_groups == {"node-0": both, "node-1": both}


def test_devices_of_pods_are_in_their_zones(machine: MachineSettings, files: MemoryStore) -> None:
    devices = (Device("a", (0,)), Device("b", (1,)), Device("c", (0, 1)), Device("d"))
    has_devices = replace(machine, devices={"example.com/gpu": devices})
    pod = Pod(uid="one", containers=[Container("app"), Container("side")], name="one")
    held = {
        "one": {
            "app": {"example.com/gpu": frozenset("bd")},
            "side": {"example.com/gpu": frozenset("c")},
        }
    }

    observed = ObservedKubelet("n", has_devices, files.blobs, [pod], held)

    available = {
        zone["name"]: resource["available"]
        for zone in report(observed)["zones"]
        for resource in zone["resources"]
        if resource["name"] == "example.com/gpu"
    }
    assert available == {"node-0": "1", "node-1": "0"}
    found = detail(observed)
    assert found.devices == {"example.com/gpu": {"node-0": ["a"], "node-1": [], "": []}}
    assert found.held == {
        "one": PodZones(held={"node-0": {"example.com/gpu": 1}, "node-1": {"example.com/gpu": 2}})
    }


def test_a_pod_with_two_uids_has_that_of_the_api_server(
    machine: MachineSettings, kubelet: HollowKubelet, files: MemoryStore
) -> None:
    """The API server's copy of a static pod has a UID of its own."""
    pod = admitted(kubelet, "of-the-kubelet", "2")
    layout = topologyreport.layout_of(machine.config)
    observed = ObservedKubelet("n", machine, files.blobs, [pod])

    body = topologyreport.body(observed, layout, "uid", {"of-the-kubelet": "of-the-server"})

    found = numadetail.decode(body["metadata"]["annotations"][NUMA_DETAIL_ANNOTATION])
    assert found.pods == ["of-the-server"]
    assert found.held is not None
    assert list(found.held) == ["of-the-server"]
