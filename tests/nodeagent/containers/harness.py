"""One pod's worker with the fake runtime and a fake API server that knows one pod."""

import asyncio
import json
import random
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from bindery.kube.objects.watched import Meta, Node
from bindery.nodeagent.containers.cgroups import NoCgroupKeeper
from bindery.nodeagent.containers.checks import Checks
from bindery.nodeagent.containers.configs import AgentPlaces, NodeSurroundings
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.hostfiles import ClusterNames, Resolver
from bindery.nodeagent.containers.images import Images
from bindery.nodeagent.containers.objects import ConfigObject, PodObjects, Service, TokenStatus
from bindery.nodeagent.containers.parts import NodeParts
from bindery.nodeagent.containers.podspec import RUN_PODS, RunPod
from bindery.nodeagent.containers.resources import NodeResources
from bindery.nodeagent.containers.runtime import Runtime
from bindery.nodeagent.containers.security import NodeLimits
from bindery.nodeagent.containers.volumes import NodeVolumes, VolumeParts
from bindery.nodeagent.containers.worker import PodWorker
from bindery.nodeagent.kubeletside.claims import ClaimApi
from bindery.nodeagent.kubeletside.node import NodeClocks, NodeSockets
from bindery.nodeagent.shapes import NodeShape, expand
from bindery.nodeagent.volumes.mounts import Mounter
from bindery.nodecore.admission.result import Admission
from bindery.nodecore.containers import Ref
from bindery.nodecore.podsync.restarts import RestartBackoff
from tests.nodeagent.containers.fakeruntime import FakeRuntime
from tests.nodeagent.kubeletside.socketworld import Claims
from tests.nodeagent.volumes.volumeworld import FakeMounter, Objects

NODE = expand((NodeShape(count=1, gpus=0),))[0]
AROUND = PodSurroundings((NODE.address,), (), NODE.machine.allocatable)
WAIT_S = 120.0
WAKE_S = 0.25
"""How often the worker looks without a change in the runtime, as the kubelet's timer does."""


def manifest(*containers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a pod on the node as the API server would store it."""
    return {
        "metadata": {
            "name": "pod",
            "namespace": "default",
            "uid": "uid-1",
            "resourceVersion": "1",
            "labels": {"app": "web"},
        },
        "spec": {
            "nodeName": NODE.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": True,
            "containers": list(containers),
            **spec,
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


def container(name: str = "app", **fields: Any) -> dict[str, Any]:
    """Return a container."""
    return {"name": name, "image": "app:1", "imagePullPolicy": "IfNotPresent", **fields}


@dataclass
class OnePodServer:
    """A fake API server, made for tests: it keeps one pod; implements `Carrier`."""

    pod: dict[str, Any]
    field_manager: str = "test"
    is_down: bool = False
    is_deleted: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    """All statuses that were written."""

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        del timeout_s
        if self.is_down:
            raise KubeError("the API server is down")
        if self.is_deleted:
            raise NotFoundError(404, "NotFound", "pod")
        if request.method == "DELETE":
            self.is_deleted = True
        elif request.method == "PATCH":
            self._patch(json.loads(request.body or b"{}"))
        return Answer(200, json.dumps(self.pod).encode(), None)

    def _patch(self, patch: Mapping[str, Any]) -> None:
        status = dict(self.pod["status"])
        for key, value in patch.get("status", {}).items():
            if key == "conditions":
                known = {one["type"]: one for one in status.get("conditions", ())}
                known |= {one["type"]: one for one in value}
                status["conditions"] = list(known.values())
            elif not key.startswith("$"):
                status[key] = value
        status = _without_nulls(status)
        self.pod = {**self.pod, "status": status}
        self.history.append(status)

    async def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        del request, idle_s
        raise NotImplementedError
        yield b""

    async def close(self) -> None:
        return None


def _without_nulls(value: Any) -> Any:
    """Return `value` as it is stored after a merge patch: null removes a field."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


class FixedObjects(PodObjects):
    """ConfigMaps, Secrets and Services that a test gives."""

    def __init__(self) -> None:
        self.maps: dict[str, ConfigObject] = {}
        self.secrets: dict[str, ConfigObject] = {}
        self.known_services: dict[tuple[str, str], Service] = {}

    async def services(self) -> Mapping[tuple[str, str], Service]:
        return self.known_services

    async def config_map(self, namespace: str, name: str) -> ConfigObject | None:
        del namespace
        return self.maps.get(name)

    async def secret(self, namespace: str, name: str) -> ConfigObject | None:
        del namespace
        return self.secrets.get(name)

    async def handler(self, runtime_class: str | None) -> str:
        return f"handler-of-{runtime_class}" if runtime_class else ""

    async def token(self, pod: RunPod, audience: str, expires_s: int) -> TokenStatus:
        del pod, expires_s
        return TokenStatus(token=f"token for {audience}", expiration_timestamp=None)


@dataclass
class Clock:
    """A time that stands still, and what a test adds to it."""

    now_s: float = field(default_factory=time.time)
    ahead_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s + self.ahead_s


@dataclass
class Harness:
    """A running worker."""

    worker: PodWorker
    runtime: FakeRuntime
    server: OnePodServer
    objects: FixedObjects
    parts: NodeParts
    clock: Clock
    task: "asyncio.Task[None]"

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.pod["status"]
        return found

    def report(self, name: str = "app", kind: str = "containerStatuses") -> dict[str, Any]:
        """Return the written status of a container, without a state before it was written."""
        found = [one for one in self.status.get(kind, ()) if one["name"] == name]
        return dict(found[0]) if found else {"state": {}}

    def waits_for(self, name: str = "app") -> str:
        """Return the reason why a container waits, empty if it does not."""
        return str(self.report(name)["state"].get("waiting", {}).get("reason", ""))

    def condition(self, kind: str) -> tuple[str, str]:
        """Return the status and reason of a condition."""
        (found,) = [one for one in self.status["conditions"] if one["type"] == kind]
        return found["status"], found.get("reason", "")

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds` is true; the worker looks at the runtime meanwhile."""
        loop = asyncio.get_running_loop()
        woken_s = loop.time()
        async with asyncio.timeout(WAIT_S):
            while not holds():
                if self.task.done():
                    self.task.result()
                if loop.time() - woken_s > WAKE_S:
                    self.worker.wake()
                    woken_s = loop.time()
                await asyncio.sleep(0.01)

    async def phase(self, wanted: str) -> None:
        await self.until(lambda: self.status["phase"] == wanted)

    def change(self, **metadata: Any) -> None:
        """Change the pod's metadata, as the API server does, and let the worker know."""
        pod = self.server.pod
        self.server.pod = {**pod, "metadata": {**pod["metadata"], **metadata}}
        self.worker.update(decoded(self.server.pod))

    def delete(self, grace_s: int = 30) -> None:
        """Begin the pod's deletion."""
        self.change(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace_s)


def decoded(pod: Mapping[str, Any]) -> RunPod:
    return RUN_PODS.decode(msgspec.json.encode(pod))


@dataclass
class Events:
    """Events of volumes: the pod's name, reason, message."""

    seen: list[tuple[str, str, str]] = field(default_factory=list)

    def __call__(self, pod: RunPod, kind: str, reason: str, message: str) -> None:  # noqa: ARG002
        self.seen.append((pod.metadata.name, reason, message))


@asynccontextmanager
async def keeping(
    root: Path,
    objects: FixedObjects,
    *,
    storage: Objects | None = None,
    mounter: Mounter | None = None,
    events: Events | None = None,
    knows_all: bool = True,
) -> AsyncIterator[NodeVolumes]:
    """Keep the volumes of a node to which nothing is attached; without a mounter, a fake one."""
    volumes = NodeVolumes(
        VolumeParts(
            root=root,
            name=NODE.name,
            mounter=mounter or FakeMounter(),
            storage=storage or Objects(),
            objects=objects,
            around=AROUND,
            now_s=time.time,
            report=events or Events(),
        )
    )
    if knows_all:
        volumes.have_all()
    task = asyncio.create_task(volumes.run(dict, lambda: None))
    try:
        yield volumes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def running(
    tmp_path: Path,
    pod: dict[str, Any],
    runtime: FakeRuntime,
    objects: FixedObjects | None = None,
    plugins: NodeResources | None = None,
    kept: NodeVolumes | None = None,
) -> AsyncIterator[Harness]:
    """Run a worker for `pod` on `runtime`, which serves.

    `plugins`: the resources of a node with plugins, which has been started. Without `kept`, the
    node's volumes are kept with mounts that only a list has.
    """
    objects = objects or FixedObjects()
    if kept is None:
        async with (
            keeping(tmp_path / "root", objects) as own,
            running(tmp_path, pod, runtime, objects, plugins, own) as harness,
        ):
            yield harness
        return
    server = OnePodServer(pod)
    clock = Clock()
    environment = Environment(clock, random.Random(1))
    client = Client(server, 5.0, environment)
    resources = plugins or started(sockets_in(tmp_path / "kubelet", clock))
    async with Runtime(f"unix://{runtime.socket}") as connection:
        parts = NodeParts(
            client=client,
            events=EventRecorder(client, "test"),
            runtime=connection,
            runtime_name="fake",
            objects=objects,
            volumes=kept,
            images=Images(connection, objects, clock),
            checks=Checks(connection),
            cgroups=NoCgroupKeeper("a test"),
            resources=resources,
            places=AgentPlaces(tmp_path / "root", tmp_path / "logs"),
            node=NodeSurroundings(ClusterNames(), Resolver(), "", NodeLimits(1 << 33)),
            around=AROUND,
            backoff=RestartBackoff(clock),
            refusal=_accept,
            clock=clock,
            random=environment.random,
        )
        decoded_pod = decoded(pod)
        if not resources.is_open:
            resources.open([decoded_pod])
        worker = PodWorker(decoded_pod, parts)
        runtime.clock, runtime.changed = clock, worker.wake
        task = asyncio.create_task(worker.run())
        try:
            yield Harness(worker, runtime, server, objects, parts, clock, task)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def sockets_in(
    directory: Path, clock: Callable[[], float], claims: ClaimApi | None = None
) -> NodeSockets:
    """Return the sockets of the node, with its checkpoints in `directory`."""
    clocks = NodeClocks(clock, random.Random(1))
    config = NODE.machine.config
    return NodeSockets(NODE.name, config, directory, claims or Claims(), clocks, _evict)


def started(sockets: NodeSockets, running: Iterable[Ref] = ()) -> NodeResources:
    """Return the resources of a node behind `sockets`; `running`: containers that run already."""
    node = Node(metadata=Meta(name=NODE.name))
    resources = NodeResources(NODE, sockets, lambda: node, _complain)
    resources.start(running)
    assert resources.failure is None
    return resources


def _complain(text: str) -> None:
    raise AssertionError(text)


async def _evict(uids: Sequence[str]) -> None:
    raise AssertionError(uids)


async def _accept(pod: RunPod) -> Admission | None:
    del pod
    return None
