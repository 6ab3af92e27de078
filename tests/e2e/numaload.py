"""A load of pods on hollow nodes with NUMA zones, and what became of them."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bindery.api import numaplacement
from bindery.api.names import HOLLOW_RUN_SECONDS_ANNOTATION, NUMA_ZONES_ANNOTATION
from bindery.api.states import ENDED_POD_PHASES
from bindery.api.times import seconds
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import BIND_REQUESTS, PODS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.reflector import Change, Reflector
from bindery.nodeagent import held
from bindery.nodecore.cpusets import parse_cpus
from devcluster.components import Component, Components
from tests.e2e.support import Corner, Gang, wait_for

ZONES = (
    "--cpu=16",
    "--memory=64Gi",
    "--gpus=4",
    "--set=numa.sockets=2",
    "--set=kubelet.cpuManagerPolicy=static",
    "--set=kubelet.topologyManagerPolicy=single-numa-node",
    "--set=kubelet.reservedSystemCPUs='0,8'",
    "--topology-delay=5",
)
"""Two zones of 8 CPUs, one of them reserved, and two GPUs; reports are five seconds late."""

KINDS = ((1, 0), (2, 1), (3, 1), (4, 2), (6, 0), (7, 1), (1, 2), (5, 1))
"""CPUs and GPUs of pods; no two of the larger ones fit one zone."""

CPUS_OF_ZONE = 8

REFUSALS = frozenset({"TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError"})

PLANNING_S = 2.0
"""How long before the request of a pod a pod of another scheduler may come to its node unforeseen:
the watch, the cycle and the write take so long."""
_CLOCK_S = 1.0
"""The precision of times in objects."""


@dataclass(frozen=True)
class Size:
    """How large a load is."""

    nodes: int
    pods: int
    gap_s: float
    """Mean time between gangs."""
    run_s: tuple[float, float]
    """The shortest and the longest run of a pod."""


@dataclass
class Outcome:
    """What became of the pods of Bindery."""

    phases: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    knowable: list[str] = field(default_factory=list)
    """Refused pods to whose node no pod of another scheduler came after they had been planned."""
    otherwise: int = 0
    """Number of pods that run on other zones than predicted."""
    took_s: float = 0.0


@dataclass
class Load:
    """One load; `random` decides about sizes and times."""

    corner: Corner
    components: Components
    size: Size
    random: Random
    _planned: dict[str, float] = field(default_factory=dict)
    """Pod UID -> when its last BindRequest was created."""

    async def start_nodes(self) -> Component:
        """Start the hollow nodes, and wait until all have reported their zones."""
        prefix = f"{self.corner.namespace}-"
        options = [f"--node-pool={self.corner.pool}", f"--name-prefix={prefix}", *ZONES]
        agent = self.components.start_hollow_nodes(
            self.size.nodes, [*options, "--remove-on-exit"], name=prefix
        )
        await asyncio.to_thread(agent.wait_ready)

        async def reported() -> bool:
            reports = await self.corner.client.list(NODE_RESOURCE_TOPOLOGIES)
            mine = [each for each in reports if each.metadata.name.startswith(prefix)]
            return len(mine) == self.size.nodes

        await wait_for(reported, "all nodes have reported")
        return agent

    async def play(self, agent: Component) -> Outcome:
        """Submit all pods, restart the agent in the middle, and wait until all have ended."""
        began = time.monotonic()
        gangs = list(self._gangs())
        requests = Reflector(
            self.corner.client,
            BIND_REQUESTS,
            self._note_request,
            namespace=self.corner.namespace,
        )
        beside = [asyncio.create_task(requests.run()), asyncio.create_task(self._others())]
        try:
            for index, gang in enumerate(gangs):
                await self.corner.submit(gang)
                await asyncio.sleep(self.random.expovariate(1 / self.size.gap_s))
                if index == len(gangs) // 2:
                    agent.kill()
                    await asyncio.to_thread(agent.restart)
            await wait_for(self._all_ended, "all pods ended", 600)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        outcome = await self._outcome()
        outcome.took_s = time.monotonic() - began
        return outcome

    def _note_request(self, change: Change[BindRequest]) -> None:
        created = seconds(change.object.metadata.creation_timestamp)
        assert created is not None, "the API server writes the time of each creation"
        for statement in change.object.each():
            for pod in statement.spec.pods:
                self._planned[pod.pod_uid] = created

    def _gangs(self) -> Iterator[Gang]:
        left, number = self.size.pods, 0
        while left:
            count = min(left, self.random.choice((1, 1, 1, 2, 4)))
            cpus, gpus = self.random.choice(KINDS)
            run_s = round(self.random.uniform(*self.size.run_s), 1)
            pod = {"containers": [_container(cpus, gpus)]}
            yield Gang(f"gang-{number}", count, pod=pod, run_seconds=run_s)
            left -= count
            number += 1

    async def _others(self) -> None:
        """Create pods of another scheduler that competes for the nodes."""
        for number in range(10_000):
            node = f"{self.corner.namespace}-{self.random.randrange(self.size.nodes)}"
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"other-{number}",
                    "namespace": self.corner.namespace,
                    "annotations": {HOLLOW_RUN_SECONDS_ANNOTATION: "4"},
                },
                "spec": {
                    "nodeName": node,
                    "schedulerName": "other",
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [_container(2, 1)],
                },
            }
            await self.corner.client.create(PODS, body, self.corner.namespace)
            await asyncio.sleep(self.random.uniform(1, 3))

    async def _own(self) -> list[Pod]:
        pods = await self.corner.client.list(PODS, namespace=self.corner.namespace)
        return [pod for pod in pods if pod.spec.scheduler_name == "bindery"]

    async def _all_ended(self) -> bool:
        await asyncio.sleep(1)
        return all(pod.status.phase in ENDED_POD_PHASES for pod in await self._own())

    async def _outcome(self) -> Outcome:
        found = Outcome()
        every = await self.corner.client.list(PODS, namespace=self.corner.namespace)
        others = [pod for pod in every if pod.spec.scheduler_name != "bindery"]
        for pod in await self._own():
            found.phases[pod.status.phase] += 1
            found.otherwise += not _as_predicted(pod)
            if pod.status.reason in REFUSALS:
                found.reasons[pod.status.reason] += 1
                planned = self._planned[pod.metadata.uid]
                if not any(_came_after(other, planned, pod) for other in others):
                    found.knowable.append(f"{pod.metadata.name} on {pod.spec.node_name}")
        return found


def _came_after(other: Pod, planned: float, refused: Pod) -> bool:
    """Return whether a pod came to the node of a refused one too late to be planned with."""
    if other.spec.node_name != refused.spec.node_name:
        return False
    came = seconds(other.metadata.creation_timestamp or "")
    decided = seconds(refused.status.start_time or refused.metadata.creation_timestamp or "")
    assert came is not None
    assert decided is not None
    return planned - PLANNING_S <= came <= decided + _CLOCK_S


def _as_predicted(pod: Pod) -> bool:
    """Return whether a pod holds the predicted zones, or has no prediction or nothing."""
    annotations = pod.metadata.annotations
    record = numaplacement.from_record(annotations.get(NUMA_ZONES_ANNOTATION), pod.metadata.uid)
    given = json.loads(annotations.get(held.ANNOTATION, "{}"))
    if record is None or not given:
        return True
    zones = {cpu // CPUS_OF_ZONE for each in given.values() for cpu in parse_cpus(each["cpus"])}
    return zones == set(record.zones)


def _container(cpus: int, gpus: int) -> dict[str, Any]:
    limits = {"cpu": str(cpus), "memory": "1Gi"}
    if gpus:
        limits["nvidia.com/gpu"] = str(gpus)
    return {"name": "worker", "image": "worker", "resources": {"limits": limits}}
