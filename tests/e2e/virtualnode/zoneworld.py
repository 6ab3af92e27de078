"""A real kubelet with NUMA zones, and what was predicted of it.

Its zones are read as an exporter reads them: hardware from /sys, what pods hold from the kubelet's
checkpoint files. The prediction is that of the scheduler, from a NodeResourceTopology with these
zones. A hollow kubelet with the same hardware and settings decides beside the real one.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec

from bindery.kube.client import Client
from bindery.kube.objects.nodetopologies import NodeResourceTopology
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.nodeagent import hardware, topologyreport
from bindery.nodeagent.beside.observed import FILES, ObservedKubelet
from bindery.nodeagent.candidates import candidate_of, core_pod
from bindery.nodeagent.hardware import KubeletSettings
from bindery.nodeagent.kubelet import HollowKubelet, Stores
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodecore import checkpointfiles, pods, sysfs
from bindery.nodecore.admission.result import Admission
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.cpusets import format_cpus
from bindery.nodecore.masks import nodes_of
from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.plain import Prediction
from bindery.nodecore.prediction.requests import request_of
from bindery.scheduler.plugins.numa import reports
from devcluster.realnode.cluster import RealCluster
from tests.e2e import nodefiles
from tests.e2e.nodefiles import DECIDED_S, Actual, decided, until

_CGROUPS = "/sys/fs/cgroup"
_DECISION_S = 1.0
"""What a decision takes at least; to ask before costs an emulated machine time."""
_FULL = 2
REFUSED_BY_SUMS = "OutOf"
"""What a reason begins with if the node has too little in all; the plugin `numa` predicts zones."""
BOUND_PODS = Resource("", "v1", "pods", "Pod", True, AgentPod)
"""Pods with what a kubelet reads of them."""


@dataclass(frozen=True)
class Setting:
    """The kubelet's settings of one round."""

    policy: str
    scope: str = "container"

    def __str__(self) -> str:
        return f"{self.policy}-{self.scope}"

    @property
    def kubelet(self) -> Mapping[str, Any]:
        """Fields of its configuration."""
        share = {"memory": "100Mi"}
        return {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "systemReserved": share,
            "evictionHard": {"memory.available": "100Mi"},
            "reservedMemory": [{"numaNode": zone, "limits": share} for zone in (0, 1)],
            "topologyManagerPolicy": self.policy,
            "topologyManagerScope": self.scope,
        }


class ZoneWorld:
    """The node, with one setting of its kubelet."""

    def __init__(
        self, cluster: RealCluster, client: Client, namespace: str, setting: Setting
    ) -> None:
        (self._node,) = cluster.nodes.values()
        self._plane, self._client, self._namespace = cluster.control_plane, client, namespace
        self.setting = setting
        self._started_s = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        """One line for each difference."""
        self._pods: dict[str, AgentPod] = {}
        """The pods that the node has admitted and that have not ended, by name."""
        self._last_files: Mapping[str, bytes] = {}
        """The kubelet changes them only when it decides about a pod."""
        self._refused_in_a_row = 0
        self._starting: set[str] = set()
        """Those of them that run."""

    @property
    def node(self) -> str:
        """The name of the node."""
        return self._node.name

    @property
    def is_full(self) -> bool:
        """Whether the last two pods were refused."""
        return self._refused_in_a_row >= _FULL

    async def start(self) -> None:
        """Start the kubelet with the setting, and a hollow one with the same hardware."""
        self._node.reconfigure(self.setting.kubelet)
        self._seen = await self._client.get(NODES, self._node.name)
        capacity = pods.resources(self._seen.status.capacity or {})
        settings = KubeletSettings.model_validate(self.setting.kubelet)
        machine = hardware.with_machine(
            sysfs.machine_of(nodefiles.hardware_files(self._node)), capacity, settings
        )
        self.machine = machine
        self._layout = topologyreport.layout_of(machine.config)
        self._store, devices = MemoryStore(), CheckpointManager(MemoryStore())
        stores = Stores(CheckpointManager(self._store), devices, outlive=False)
        self._hollow = HollowKubelet(self._node.name, machine, stores, lambda: 0.0)
        self._hollow.start((), {})
        self._hollow.ready()

        async def is_up() -> bool:
            seen = await self._client.get(NODES, self._node.name)
            allocatable = pods.resources(seen.status.allocatable or {})
            own = {name: allocatable.get(name) for name in machine.allocatable}
            self._seen = seen
            self._files()
            written = all(self._last_files[name] for name in FILES)
            return written and own == machine.allocatable

        await until(is_up, f"the kubelet offers {machine.allocatable}", DECIDED_S)

    async def arrive(self, body: dict[str, Any]) -> None:
        """Create a pod, and compare what was predicted with what the node does."""
        starts = "volumes" not in body["spec"]
        predicted = self._predicted(body)
        pod = await self._client.create(BOUND_PODS, body, self._namespace)
        candidate = candidate_of(pod, self._seen)
        expected = self._hollow.admit(candidate, self.machine.allocatable, starts=False)
        await asyncio.sleep(_DECISION_S)
        actual = await decided(self._client, self._node, self._namespace, pod.metadata.name)
        self._last_files = actual.files
        self._compare(pod, predicted, expected, actual)
        self._say(f"{pod.metadata.name}: {actual.admission.reason or 'admitted'}")
        if actual.admission.admit:
            self._pods[pod.metadata.name] = pod
            self._starting |= {pod.metadata.name} if starts else set()
            self.counts["admitted"] += 1
            self.counts["started"] += starts
            self._refused_in_a_row = 0
            if starts:
                name = pod.metadata.name
                await until(lambda: self._runs(name), f"{name} runs", DECIDED_S)
                self._hollow.start_containers(pod.metadata.uid)
                self._files()
        else:
            self._refused_in_a_row += 1
            self.counts[actual.admission.reason] += 1

    async def end(self, random: Random, share: float) -> None:
        """Let some pods end, by deletion or by themselves."""
        self._say(f"{len(self._pods)} pods are there, and some end")
        ending = [name for name in self._pods if random.random() < share]
        for name in ending:
            if name in self._starting and random.random() < 1 / 2:
                await self._finish(name)
        for name in ending:
            await self._client.delete(BOUND_PODS, name, self._namespace)

        async def gone() -> bool:
            left = await self._client.list(BOUND_PODS, namespace=self._namespace)
            return not {one.metadata.name for one in left} & set(ending)

        await until(gone, f"{ending} are gone", DECIDED_S)
        for name in ending:
            self._hollow.release(self._pods.pop(name).metadata.uid)
            self._starting.discard(name)
        self._refused_in_a_row = 0

    async def check_cgroups(self) -> None:
        """Compare the cgroups of running containers with the checkpoints."""

        async def all_run() -> bool:
            return all([await self._runs(name) for name in self._starting])

        await until(all_run, f"{sorted(self._starting)} run", DECIDED_S)

        # The kubelet gives containers of the shared pool its present CPUs every 10 s.
        found: list[str] = []

        async def agree() -> bool:
            found[:] = [text for name in sorted(self._starting) for text in self._differing(name)]
            return not found

        try:
            await until(agree, "cgroups agree", 60)
        except AssertionError:
            self.wrong += found

    # -- inside ------------------------------------------------------------------------------------

    def _predicted(self, body: dict[str, Any]) -> list[Prediction]:
        """Return what the scheduler predicts, with and without the detail of Bindery's exporter."""
        request = request_of(core_pod(msgspec.convert(_with_requests(body), AgentPod)))
        observed = self._observed()
        report = topologyreport.body(observed, self._layout, self._seen.metadata.uid)
        capacity = self._seen.status.capacity or {}
        full, other = (
            reports.read(
                msgspec.convert({**report, "metadata": metadata}, NodeResourceTopology), capacity
            )
            for metadata in (report["metadata"], {"name": self._node.name})
        )
        assert full is not None
        assert other is not None
        # Reports of other exporters lack the groups; the scheduler has them from its records.
        without = replace(other.zones, groups=full.zones.groups)
        return [plain.predict(zones, request) for zones in (full.zones, without)]

    def _observed(self) -> ObservedKubelet:
        running = [core_pod(pod) for pod in self._pods.values()]
        return ObservedKubelet(self._node.name, self.machine, self._last_files, running)

    def _say(self, text: str) -> None:
        """Report progress to people, with the time since the start."""
        print(f"{time.monotonic() - self._started_s:5.0f} s {self.setting} {text}", flush=True)

    def _files(self) -> None:
        self._last_files = nodefiles.checkpoints(self._node)

    def _compare(
        self, pod: AgentPod, predictions: list[Prediction], expected: Admission, actual: Actual
    ) -> None:
        did = actual.admission
        said: list[str] = []
        if (expected.admit, expected.reason) != (did.admit, did.reason) or (
            not did.admit and did.message != f"Pod was rejected: {expected.message}"
        ):
            said.append(f"a hollow kubelet: {expected}")
        zones = actual.zones(pod.metadata.uid, self._layout.cpus) if did.admit else 0
        for predicted in predictions:
            if did.reason.startswith(REFUSED_BY_SUMS):
                continue
            if (predicted.admit, predicted.reason, predicted.zones) != (
                did.admit,
                did.reason,
                zones,
            ):
                text = f"{predicted.admit} {predicted.reason} {nodes_of(predicted.zones)}"
                said.append(f"the scheduler: {text}")
        if did.admit and expected.admit:
            said += self._differing_files(actual)
        if said:
            asked = [one.resources for one in pod.spec.containers]
            did_text = f"{did} in zones {nodes_of(zones)}"
            self.wrong.append(f"{self.setting}: {pod.metadata.name} {asked}: {did_text}; {said}")

    def _differing_files(self, actual: Actual) -> list[str]:
        """Return which checkpoints differ from those of the hollow kubelet."""
        own = {name: self._store.blobs[name] for name in FILES}
        return [
            f"{name}: {actual.files[name]!r} instead of {own[name]!r}"
            for name in FILES
            if checkpointfiles.read(actual.files[name]).entries
            != checkpointfiles.read(own[name]).entries
        ]

    async def _finish(self, name: str) -> None:
        uid = self._pods[name].metadata.uid
        directories = f"/sys/fs/cgroup/kubepods/pod{uid} /sys/fs/cgroup/kubepods/*/pod{uid}"
        self._node.run("sh", "-c", f"kill $(cat $(find {directories} -name cgroup.procs)) || true")

        async def ended() -> bool:
            pod = await self._client.get(PODS, name, self._namespace)
            return pod.status.phase in ("Succeeded", "Failed")

        await until(ended, f"{name} ends by itself", DECIDED_S)
        self.counts["ended by themselves"] += 1

    async def _runs(self, name: str) -> bool:
        return (await self._client.get(PODS, name, self._namespace)).status.phase == "Running"

    def _differing(self, name: str) -> list[str]:
        """Return how the cgroups of a pod's containers differ from the checkpoints."""
        pod = self._pods[name]
        state = self._observed().manager
        found = []
        for container, path in self._containers(name):
            cpus, mems = self._node.run(
                "cat", f"{path}/cpuset.cpus.effective", f"{path}/cpuset.mems.effective"
            ).split()
            own = state.cpu.state.containers.get(pod.metadata.uid, {}).get(container)
            wanted_cpus = format_cpus(state.cpu.state.default if own is None else own)
            blocks = state.memory.state.containers.get(pod.metadata.uid, {}).get(container, ())
            zones = {zone for block in blocks for zone in block.numa_nodes} or {0, 1}
            wanted = wanted_cpus, format_cpus(frozenset(zones))
            if (cpus, mems) != wanted:
                found.append(f"{self.setting}: {name}/{container}: {cpus, mems}, not {wanted}")
        return found

    def _containers(self, name: str) -> list[tuple[str, str]]:
        """Return the running containers of a pod: name, and the path of the cgroup."""
        text = self._plane.kubectl(
            "get", "pod", name, f"--namespace={self._namespace}", "--output=json"
        )
        status = json.loads(text)["status"]
        listed = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
        found = []
        for one in listed:
            if "running" in one["state"]:
                identity = one["containerID"].rpartition("/")[2]
                path = self._node.run("find", f"{_CGROUPS}/kubepods", "-name", identity).strip()
                found.append((one["name"], path))
        return found


def _with_requests(body: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the requests that the API server takes from its limits."""
    spec = body["spec"]
    lists = {
        key: [
            {**one, "resources": {"requests": one["resources"].get("limits"), **one["resources"]}}
            for one in spec[key]
        ]
        for key in ("initContainers", "containers")
        if key in spec
    }
    return {**body, "spec": {**spec, **lists}}
