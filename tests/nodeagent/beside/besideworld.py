"""A node with two NUMA zones as the agent beside its kubelet reads it, without files or sockets."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from bindery.kube.objects.watched import Meta, Node, NodeStatus
from bindery.nodeagent.beside.podresources import PodResources
from bindery.nodeagent.beside.sources import Mark, SourceError
from bindery.nodeagent.candidates import core_pod
from bindery.nodeagent.hardware import KubeletSettings, MachineSettings, with_machine
from bindery.nodeagent.kubelet import HollowKubelet, Stores
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodecore import pods, sysfs
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore

KIB_OF_ZONE = 8 << 20
CAPACITY = {"cpu": "8", "memory": "16Gi", "pods": "110"}
SETTINGS: dict[str, Any] = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "cgroupDriver": "systemd",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "1948Mi"},
    "reservedMemory": [{"numaNode": zone, "limits": {"memory": "1Gi"}} for zone in (0, 1)],
    "topologyManagerPolicy": "single-numa-node",
    "featureGates": {"SomeOtherGate": True, "CPUManagerPolicyAlphaOptions": True},
}
"""As a file has them; 100Mi more are the default threshold of eviction."""


def hardware() -> dict[str, str]:
    """Return the files of a machine with two sockets of four CPUs and 8 GiB each."""
    files: dict[str, str] = {}
    for zone in (0, 1):
        cpus = range(4 * zone, 4 * zone + 4)
        node = f"node/node{zone}"
        files[f"{node}/cpulist"] = f"{cpus[0]}-{cpus[-1]}\n"
        files[f"{node}/meminfo"] = f"Node {zone} MemTotal: {KIB_OF_ZONE} kB\n"
        files[f"{node}/distance"] = "10 21\n" if zone == 0 else "21 10\n"
        for cpu in cpus:
            files[f"cpu/cpu{cpu}/topology/physical_package_id"] = f"{zone}\n"
            files[f"cpu/cpu{cpu}/topology/core_id"] = f"{cpu}\n"
    return files


def node() -> Node:
    return Node(metadata=Meta(name="n", uid="uid-n"), status=NodeStatus(capacity=CAPACITY))


def configuration(**changes: Any) -> str:
    found = {key: value for key, value in {**SETTINGS, **changes}.items() if value is not None}
    return yaml.safe_dump(found)


def machine(text: str = configuration()) -> MachineSettings:
    settings = {k: v for k, v in yaml.safe_load(text).items() if k in _FIELDS}
    settings["evictionHard"] = {"memory.available": "100Mi"}
    parsed = KubeletSettings.model_validate(settings)
    return with_machine(sysfs.machine_of(hardware()), pods.resources(CAPACITY), parsed)


_FIELDS = {"cpuManagerPolicy", "reservedSystemCPUs", "memoryManagerPolicy", "systemReserved",
           "reservedMemory", "topologyManagerPolicy"}  # fmt: skip


def pod(name: str, cpu: str = "2", phase: str = "Pending", **annotations: str) -> AgentPod:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "annotations": {key.replace("__", "/"): text for key, text in annotations.items()},
            },
            "spec": {"nodeName": "n", "containers": [{"name": "app", "resources": resources}]},
            "status": {"phase": phase},
        },
        AgentPod,
    )


class KubeletStandIn:
    """A kubelet that admits pods and writes checkpoints, and may be away; implements `Sources`."""

    def __init__(self) -> None:
        self.text: str | None = configuration()
        self.answers = PodResources()
        self.is_away = False
        self.readings = 0
        self.blobs: dict[str, bytes] = {}
        self.changes = 1
        self.starts = 1
        self._start()

    def restart(self, **settings: Any) -> None:
        """Start with other settings, without the state of the old ones."""
        self.text = configuration(**settings)
        self.starts += 1
        self._start()

    def admit(self, pod: AgentPod) -> None:
        candidate = Candidate(pod=core_pod(pod), node_name="n", is_pending=True)
        answer = self._kubelet.admit(candidate, self._kubelet.machine.allocatable)
        assert answer.admit, answer
        self._write()

    def end(self, pod: AgentPod) -> None:
        """End a pod; the files keep what it held until the next admission."""
        self._kubelet.release(pod.metadata.uid)

    def _start(self) -> None:
        self._store = MemoryStore()
        stores = Stores(CheckpointManager(self._store), CheckpointManager(MemoryStore()), True)
        assert self.text is not None
        self._kubelet = HollowKubelet("n", machine(self.text), stores, lambda: 0.0)
        self._kubelet.start((), {})
        self._kubelet.ready()
        self._write()

    def _write(self) -> None:
        self.blobs = dict(self._store.blobs)
        self.changes += 1

    # -- as the agent reads it ---------------------------------------------------------------------

    def marks(self) -> Mapping[str, Mark]:
        return {"files": (0, self.changes)}

    def started(self) -> Mark | None:
        return None if self.is_away else (self.starts, 0)

    def files(self) -> Mapping[str, bytes]:
        self.readings += 1
        return dict(self.blobs)

    def configuration(self) -> str | None:
        return self.text

    def hardware(self) -> Mapping[str, str]:
        return hardware()

    async def resources(self) -> PodResources:
        if self.is_away:
            raise SourceError("pod-resources/kubelet.sock: no such file")
        return self.answers
