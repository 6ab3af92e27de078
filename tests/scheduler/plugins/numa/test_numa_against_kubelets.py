"""Random pods on nodes with kubelets that align: predicted pods are not refused.

The kubelets run in hollow nodes, without an API server. Their reports are late.
"""

import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bindery.api import podfingerprint
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects import watched as kube
from bindery.kube.objects.nodetopologies import NodeResourceTopology
from bindery.nodeagent.hardware import KubeletSettings, MachineSettings, NumaHardware, machine_of
from bindery.nodeagent.kubelet import HollowKubelet, in_memory
from bindery.nodeagent.topologyreport import body, layout_of
from bindery.nodecore import pods
from bindery.nodecore.admission.facts import Candidate
from tests.scheduler.numaworld import NumaWorld, bound, container
from tests.scheduler.schedulerworld import GPU, as_created, group, pod
from tests.sizes import IS_LONG

ROUNDS = 200 if IS_LONG else 15
SETTINGS: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"cpu": 2, "memory": "2Gi"},
    "reservedSystemCPUs": "0,1",
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "1Gi"}},
        {"numaNode": 1, "limits": {"memory": "1Gi"}},
    ],
}
RESOURCES = {"cpu": "24", "memory": "64Gi", GPU: "4", "pods": "110", "ephemeral-storage": "100Gi"}
WAYS = ["list", "fingerprint", "use"]
"""How a report shows which pods it includes."""


def machine(policy: str, scope: str) -> MachineSettings:
    settings = {**SETTINGS, "topologyManagerPolicy": policy, "topologyManagerScope": scope}
    numa = NumaHardware(sockets=2, threads_per_core=2)
    return machine_of(RESOURCES, GPU, numa, KubeletSettings.model_validate(settings))


def text(name: str, amount: int) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)


class Nodes:
    """Nodes with kubelets; a report is shown `late` rounds after it was made."""

    def __init__(self, count: int, policy: str, scope: str, way: str, late: int) -> None:
        self._way = way
        self.kubelets: dict[str, HollowKubelet] = {}
        self._reports: deque[list[NodeResourceTopology]] = deque()
        self._late = late
        made = machine(policy, scope)
        self._layout = layout_of(made.config)
        for number in range(count):
            name = f"n{number}"
            kubelet = HollowKubelet(name, made, in_memory(), lambda: 0.0)
            kubelet.start((), {})
            kubelet.ready()
            self.kubelets[name] = kubelet
        self.allocatable = {**made.allocatable, "pods": 110}

    def objects(self) -> list[kube.KubeObject]:
        amounts = {name: text(name, amount) for name, amount in self.allocatable.items()}
        status = kube.NodeStatus(
            capacity=RESOURCES,
            allocatable=amounts,
            conditions=[kube.Condition(type="Ready", status="True")],
        )
        metas = (kube.Meta(name=name, uid=f"node-{name}") for name in self.kubelets)
        return [kube.Node(metadata=meta, status=status) for meta in metas]

    def reports(self) -> list[NodeResourceTopology]:
        """Create reports of the present state; return the reports that become visible."""
        self._reports.append([self._report(each) for each in self.kubelets.values()])
        return self._reports.popleft() if len(self._reports) > self._late else []

    def _report(self, kubelet: HollowKubelet) -> NodeResourceTopology:
        found = msgspec.convert(body(kubelet, self._layout, "uid"), NodeResourceTopology)
        annotations = dict(found.metadata.annotations)
        attributes = found.attributes
        if self._way != "list":
            annotations.pop(NUMA_DETAIL_ANNOTATION)
        if self._way == "use":
            annotations.pop(podfingerprint.ANNOTATION)
            attributes = [each for each in attributes if "Fingerprint" not in each.name]
        meta = msgspec.structs.replace(found.metadata, annotations=annotations)
        return msgspec.structs.replace(found, metadata=meta, attributes=attributes)

    def admit(self, item: kube.Pod, node: str) -> str:
        """Return why the kubelet of `node` refuses `item`; "" if it admits it."""
        candidate = Candidate(pods.Pod.from_manifest(msgspec.to_builtins(item)))
        return self.kubelets[node].admit(candidate, self.allocatable).reason


def some_pod(dice: random.Random, name: str, **more: Any) -> kube.Pod:
    kind = dice.random()
    has_init = dice.random() < 0.2
    # Which CPUs of a core the kubelet uses again is not known from counts.
    cpu: str | int = dice.choice([2, 4, 6, 8] if has_init else [1, 2, 2, 4, 6, 8])
    gpu = dice.choice([0, 0, 1, 2])
    memory = f"{dice.choice([1, 2, 8])}Gi"
    if kind < 0.15:
        cpu = "1500m"
    containers = [container(cpu, gpu, memory, guaranteed=kind < 0.85, name="main")]
    init = []
    if has_init:
        sidecar = "Always" if dice.random() < 0.5 else None
        init = [container(dice.choice([2, 4]), 0, "1Gi", name="init", restart_policy=sidecar)]
    return pod(name, containers=containers, init_containers=init or None, **more)


def play(policy: str, scope: str, way: str, late: int, *, predicts: bool = True) -> tuple[int, int]:
    """Let pods come and end for some rounds; return how many were refused and how many placed."""
    dice = random.Random(f"{policy}/{scope}/{way}")  # not for secrets
    nodes = Nodes(3, policy, scope, way, late)
    plugins = [p for p in SchedulerConfiguration().plugins if predicts or p.name != "numa"]
    world = NumaWorld(*nodes.objects(), plugins=plugins)
    for _ in range(late + 1):
        world.put(*nodes.reports())
    known: dict[str, kube.Pod] = {}
    running: dict[str, tuple[kube.Pod, str]] = {}
    refused = placed = 0
    for number in range(ROUNDS):
        for item in new_pods(dice, number):
            world.put(item)
            if isinstance(item, kube.Pod):
                known[item.metadata.name] = item
        for draft in world.drafts():
            world.put(as_created(draft))
            for each in draft.spec.pods:
                item, node = known[each.pod_name], each.selected_node
                placed += 1
                there = bound(item, node, placement_of(each.plugin_data), phase="Running")
                if nodes.admit(item, node):
                    refused += 1
                    status = msgspec.structs.replace(there.status, phase="Failed")
                    world.put(msgspec.structs.replace(there, status=status))
                    continue
                world.put(there)
                running[each.pod_name] = there, node
        for name in [name for name in sorted(running) if dice.random() < 0.3]:
            there, node = running.pop(name)
            nodes.kubelets[node].release(there.metadata.uid)
            world.remove(there)
        foreign = some_pod(dice, f"foreign-{number}", scheduler="other")
        node = dice.choice(sorted(nodes.kubelets))
        if not nodes.admit(foreign, node):  # the other scheduler may be wrong
            there = bound(foreign, node)
            world.put(there)
            running[foreign.metadata.name] = there, node
        world.put(*nodes.reports())
    return refused, placed


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_no_pod_is_refused_while_reports_are_in_time(policy: str, scope: str) -> None:
    refused, placed = play(policy, scope, "list", late=0)

    assert refused == 0
    assert placed > ROUNDS


def test_late_reports_lead_to_few_refusals() -> None:
    cases = [(policy, way) for policy in ("single-numa-node", "restricted") for way in WAYS]
    predicted = [play(policy, "container", way, late=2) for policy, way in cases]
    blind = [play(policy, "container", way, late=2, predicts=False) for policy, way in cases]

    # Where pods end that the report still includes, the kubelet may choose other zones.
    refused, placed = (sum(each) for each in zip(*predicted, strict=True))
    without = sum(each for each, _ in blind)
    assert refused <= 0.03 * placed, (refused, placed)
    assert without > 3 * max(refused, 1), (refused, without)


def new_pods(dice: random.Random, number: int) -> list[kube.KubeObject]:
    if dice.random() < 0.5:
        return [some_pod(dice, f"p{number}-{i}") for i in range(dice.randint(1, 4))]
    size = dice.randint(2, 4)
    name = f"g{number}"
    return [group(name, size), *(some_pod(dice, f"{name}-{i}", group=name) for i in range(size))]


def placement_of(data: Mapping[str, Any]) -> NumaPlacement | None:
    return msgspec.convert(data["numa"], NumaPlacement) if "numa" in data else None
