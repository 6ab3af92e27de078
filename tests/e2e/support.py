"""What the end-to-end tests share: a corner of the cluster of one's own, and waiting for events.

A test works in a namespace and with nodes of a node pool that no other test uses, so that it
neither sees what others left behind nor leaves anything that others see. The nodes are plain Node
objects unless a test starts hollow nodes: being bound needs no kubelet.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bindery.api.configuration import (
    BinderConfiguration,
    BindRequestConfiguration,
    LeaderElection,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.api.names import (
    API_VERSION,
    HOLLOW_RUN_SECONDS_ANNOTATION,
    HOSTNAME_LABEL,
    NODE_POOL_LABEL,
    POD_GROUP_ANNOTATION,
)
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementKey
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, QUEUES, Resource
from bindery.kube.objects.watched import Condition, KubeObject, Pod
from bindery.kube.watches.reflector import Change, EventType, Reflector
from devcluster.components import Component

WAIT_S = 120.0
"""Every wait ends after so long; generous, because the machine may be busy."""
_POLL_S = 0.05

_WRITES = ("create", "update", "patch", "delete")

T = TypeVar("T")

NO_ELECTION = LeaderElection(enabled=False)
SHORT_LEASES = LeaderElection(lease_seconds=9, renew_deadline_seconds=7, retry_seconds=0.2)
"""Of terms that tests end. With a deadline of 2 s, a busy machine ended them too."""
BY_DEFAULT = BindRequestConfiguration()


async def wait_for(
    probe: Callable[[], Awaitable[T | None]], what: str, timeout_s: float = WAIT_S
) -> T:
    """Ask `probe` until it answers something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = await probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        await asyncio.sleep(_POLL_S)


def scheduler_configuration(
    pool: str,
    bind_request: BindRequestConfiguration = BY_DEFAULT,
    leader_election: LeaderElection = NO_ELECTION,
) -> SchedulerConfiguration:
    return SchedulerConfiguration(
        node_pool=pool, bind_request=bind_request, leader_election=leader_election
    )


def binder_configuration(
    *plugins: PluginConfiguration, time_to_live_s: float = 1.0
) -> BinderConfiguration:
    """Finished requests go quickly, and a failed attempt is soon tried again."""
    return BinderConfiguration(
        plugins=plugins,
        time_to_live_seconds=time_to_live_s,
        max_backoff_seconds=0.5,
        leader_election=NO_ELECTION,
    )


@dataclass(frozen=True)
class Sample:
    """One line of a component's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(component: Component) -> list[Sample]:
    """Return all metrics of a component that runs."""
    return [
        Sample(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(component.metrics())
        for sample in family.samples
    ]


def metric(component: Component, name: str, **labels: str) -> float:
    """Return the sum of the metric's values over all label sets that agree with `labels`."""
    return sum(
        sample.value
        for sample in samples(component)
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def writes_of(component: Component) -> dict[str, float]:
    """Return how often the component has written: "component verb resource" -> count."""
    counts: dict[str, float] = {}
    for sample in samples(component):
        labels = sample.labels
        if sample.name == "bindery_api_requests_total" and labels["verb"] in _WRITES:
            key = f"{component.name} {labels['verb']} {labels['resource']}"
            counts[key] = counts.get(key, 0) + sample.value
    return counts


@dataclass(frozen=True)
class Gang:
    """What `Corner.submit` creates: a PodGroup, where there is one, and its equal pods."""

    name: str
    size: int
    min_member: int | None = None
    """Default: all."""
    cpu: str = "1"
    queue: str = "default"
    run_seconds: float | None = None
    group: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the PodGroup's spec."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the pods' spec."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels of the pods."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Further annotations of the pods."""
    admit: Callable[[dict[str, Any]], dict[str, Any]] = lambda pod: pod
    """What a webhook would make of each pod."""


class Event(KubeObject, frozen=True):
    """An event, as far as these tests read it."""

    regarding: dict[str, str] = msgspec.field(default_factory=dict)
    reason: str = ""
    note: str = ""


EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, Event)


@dataclass(frozen=True)
class Corner:
    """One test's part of the cluster."""

    client: Client
    namespace: str
    pool: str

    # -- nodes and queues ------------------------------------------------------------------------

    async def add_nodes(self, *names: str, cpu: str = "2") -> list[str]:
        """Create Ready nodes, and wait until pods are admitted to them."""
        full = [f"{self.namespace}-{name}" for name in names]
        for name in full:
            await self.client.create(NODES, self._node(name, cpu))

        async def admitted() -> bool:
            nodes = [await self.client.get(NODES, name) for name in full]
            return not any(node.spec.taints for node in nodes)

        await wait_for(admitted, "the nodes' not-ready taints go")
        return full

    async def remove_node(self, name: str) -> None:
        await self.client.delete(NODES, name)

    async def add_queue(self, name: str, spec: Mapping[str, Any]) -> str:
        """Create a queue for this test alone; return its name."""
        full = f"{self.namespace}-{name}"
        body = {
            "apiVersion": API_VERSION,
            "kind": "Queue",
            "metadata": {"name": full, "labels": {NODE_POOL_LABEL: self.pool}},
            "spec": spec,
        }
        await self.client.create(QUEUES, body)
        return full

    # -- gangs -----------------------------------------------------------------------------------

    async def submit(self, *gangs: Gang) -> None:
        for gang in gangs:
            await self.create_group(gang)
        await asyncio.gather(
            *(self.create_pod(gang, index) for gang in gangs for index in range(gang.size))
        )

    async def create_group(self, gang: Gang) -> None:
        minimum = gang.size if gang.min_member is None else gang.min_member
        body = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {
                "name": gang.name,
                "namespace": self.namespace,
                "labels": {NODE_POOL_LABEL: self.pool},
            },
            "spec": {"minMember": minimum, "queue": gang.queue, **gang.group},
        }
        await self.client.create(POD_GROUPS, body, self.namespace)

    async def create_pod(self, gang: Gang, index: int) -> Pod:
        annotations = {POD_GROUP_ANNOTATION: gang.name, **gang.annotations}
        if gang.run_seconds is not None:
            annotations[HOLLOW_RUN_SECONDS_ANNOTATION] = str(gang.run_seconds)
        container = {
            "name": "worker",
            "image": "worker",
            "resources": {"requests": {"cpu": gang.cpu}},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{gang.name}-{index}",
                "namespace": self.namespace,
                "labels": {NODE_POOL_LABEL: self.pool, **gang.labels},
                "annotations": annotations,
            },
            "spec": {
                "schedulerName": "bindery",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                **gang.pod,
            },
        }
        return await self.client.create(PODS, gang.admit(body), self.namespace)

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(PODS, name, self.namespace, grace_period_s=0)

    async def delete_gang(self, gang: Gang) -> None:
        await self.client.delete(POD_GROUPS, gang.name, self.namespace)
        await asyncio.gather(*(self.delete_pod(pod.metadata.name) for pod in await self.pods(gang)))

    async def pods(self, gang: Gang) -> list[Pod]:
        return [
            pod
            for pod in await self.client.list(PODS, namespace=self.namespace)
            if pod.metadata.annotations.get(POD_GROUP_ANNOTATION) == gang.name
        ]

    async def bound_count(self, gang: Gang) -> int:
        return sum(bool(pod.spec.node_name) for pod in await self.pods(gang))

    async def requests(self) -> list[CommittedStatement]:
        """Return the BindRequests of this corner's pool, one for each Statement."""
        every = await self.client.list(BIND_REQUESTS, namespace=self.namespace)
        mine = (r for r in every if r.metadata.labels.get(NODE_POOL_LABEL, "") == self.pool)
        return [each for stored in mine for each in stored.each()]

    async def condition(self, gang: Gang) -> Condition | None:
        """Return the `Scheduled` condition of the PodGroup."""
        return _find((await self.group(gang)).status.conditions, "Scheduled")

    async def group(self, gang: Gang) -> PodGroup:
        """Return the PodGroup of `gang`."""
        return await self.client.get(POD_GROUPS, gang.name, self.namespace)

    async def events(self, reason: str) -> list[Event]:
        """Return the events of this namespace with `reason`."""
        every = await self.client.list(EVENTS, namespace=self.namespace)
        return [event for event in every if event.reason == reason]

    # -- waiting ---------------------------------------------------------------------------------

    async def wait_bound(self, *gangs: Gang, timeout_s: float = WAIT_S) -> None:
        """Wait until all pods of `gangs` are bound."""

        async def bound() -> bool:
            counts = [await self.bound_count(gang) for gang in gangs]
            return counts == [gang.size for gang in gangs]

        names = ", ".join(gang.name for gang in gangs)
        await wait_for(bound, f"{names} bound", timeout_s)

    async def wait_condition(self, gang: Gang, status: str, reason: str) -> Condition:
        """Wait until the PodGroup has the condition Scheduled with these values; return it."""

        async def said() -> Condition | None:
            condition = await self.condition(gang)
            wanted = condition is not None and (condition.status, condition.reason)
            return condition if wanted == (status, reason) else None

        found = await wait_for(said, f"{gang.name} says Scheduled={status} {reason}")
        assert found is not None
        return found

    async def wait_pods_say(self, gang: Gang, text: str) -> None:
        """Wait until each pod has PodScheduled=False with `text` in the message."""

        async def said() -> bool:
            conditions = [
                _find(pod.status.conditions, "PodScheduled") for pod in await self.pods(gang)
            ]
            return all(
                c is not None and c.status == "False" and text in c.message for c in conditions
            )

        await wait_for(said, f"the pods of {gang.name} say {text!r}")

    async def wait_request(self) -> CommittedStatement:
        """Wait until there is a BindRequest, and return its first Statement."""
        found = await wait_for(self.requests, "a BindRequest is there")
        return found[0]

    async def wait_nothing_left(self, timeout_s: float = WAIT_S) -> None:
        """Wait until the binder has removed every BindRequest."""

        async def none() -> bool:
            return not await self.requests()

        await wait_for(none, "all BindRequests gone", timeout_s)

    async def clean(self) -> None:
        """Remove what belongs to this corner, so that nothing waits for a kubelet to end it."""
        pods = await self.client.list(PODS, namespace=self.namespace)
        await asyncio.gather(*(_ignore_missing(self.delete_pod(p.metadata.name)) for p in pods))
        mine = f"{NODE_POOL_LABEL}={self.pool}"
        for node in await self.client.list(NODES, label_selector=mine):
            await _ignore_missing(self.client.delete(NODES, node.metadata.name))
        for queue in await self.client.list(QUEUES, label_selector=mine):
            await _ignore_missing(self.client.delete(QUEUES, queue.metadata.name))

    def _node(self, name: str, cpu: str) -> Mapping[str, Any]:
        room = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        labels = {NODE_POOL_LABEL: self.pool, HOSTNAME_LABEL: name}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
        }


class Observer:
    """Watches all the time and remembers every node that any pod was ever given."""

    def __init__(self, corner: Corner) -> None:
        self._corner = corner
        self.nodes_of_pods: dict[str, list[str]] = {}
        """Pod UID -> the nodes it was seen on, in order."""
        self.created_requests: list[str] = []
        """Names of the BindRequests, in the order in which they appeared."""
        self.statements: dict[StatementKey, CommittedStatement] = {}
        """The last seen states of Statements in BindRequests, deleted requests included."""
        self.live_requests: set[str] = set()
        """Names of the BindRequests that exist."""
        self.story: list[str] = []
        """What happened to pods, in order: "bound", "leaves" or "gone", and "nominated" or, for
        nowhere any more, "unnominated", each with the pod's name."""
        self._last: dict[str, Pod] = {}
        """Pod UID -> its last state."""

    @asynccontextmanager
    async def watch(self) -> AsyncIterator["Observer"]:
        corner = self._corner
        pods = Reflector(corner.client, PODS, self._take_pod, namespace=corner.namespace)
        requests = Reflector(
            corner.client, BIND_REQUESTS, self._take_request, namespace=corner.namespace
        )
        tasks = [asyncio.create_task(pods.run()), asyncio.create_task(requests.run())]
        try:
            await pods.synced.wait()
            await requests.synced.wait()
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def check(self) -> None:
        """Check that no pod ever had two nodes."""
        moved = {uid: nodes for uid, nodes in self.nodes_of_pods.items() if len(nodes) > 1}
        assert not moved

    def _take_pod(self, change: Change[Pod]) -> None:
        node = change.object.spec.node_name
        seen = self.nodes_of_pods.setdefault(change.object.metadata.uid, [])
        if node != (seen[-1] if seen else ""):
            seen.append(node)
        self._tell(change)

    def _tell(self, change: Change[Pod]) -> None:
        pod = change.object
        name, old = pod.metadata.name, self._last.get(pod.metadata.uid, Pod())
        self._last[pod.metadata.uid] = pod
        if pod.status.nominated_node_name != old.status.nominated_node_name:
            is_nominated = bool(pod.status.nominated_node_name)
            self.story.append(f"{'nominated' if is_nominated else 'unnominated'} {name}")
        if pod.spec.node_name and not old.spec.node_name:
            self.story.append(f"bound {name}")
        if pod.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
            self.story.append(f"leaves {name}")
        if change.type is EventType.DELETED:
            self.story.append(f"gone {name}")

    def _take_request(self, change: Change[BindRequest]) -> None:
        if change.type is EventType.ADDED:
            self.created_requests.append(change.object.metadata.name)
        self.statements.update((each.key, each) for each in change.object.each())
        if change.type is EventType.DELETED:
            self.live_requests.discard(change.object.metadata.name)
        else:
            self.live_requests.add(change.object.metadata.name)


def _find(conditions: list[Condition] | None, kind: str) -> Condition | None:
    return next((c for c in conditions or () if c.type == kind), None)


async def _ignore_missing(deletion: Awaitable[None]) -> None:
    with suppress(NotFoundError):
        await deletion
