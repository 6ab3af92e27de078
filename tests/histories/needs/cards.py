"""Nodes with HAMi's cards: their kubelets, with a fake of HAMi's device plugin.

The kubelet admits one pod after the other: the plugin's Allocate, then the pod runs; or the pod
fails for UnexpectedAdmissionError. A plugin that hangs keeps the pod Pending until it answers.
"""

import asyncio
from collections import defaultdict
from random import Random
from typing import Any, ClassVar, Final

import msgspec

from bindery.api.hami import names, nodedevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import HOLLOW_RUN_SECONDS_ANNOTATION, HOSTNAME_LABEL
from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from fakes.hami import HamiDevicePlugin
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change
from tests.histories.needs.controller import NAMESPACE, Controller
from tests.histories.needs.plans import Trouble, TroubleKind

CARD: Final = NodeDevice(
    id="GPU-0", count=4, memory_mib=10_000, cores=100, type="NVIDIA-T4", healthy=True
)
PREFIX: Final = "h"
REFUSED: Final = "UnexpectedAdmissionError"
BY_TROUBLE: Final = "the history fails it"
"""The message of a pod that fails for no fault of the product."""
_ADMISSION_S: Final = (0.01, 0.5)


class CardNodes(Controller):
    """All nodes with cards."""

    watches: ClassVar[frozenset[str]] = frozenset(("pods",))

    def __init__(
        self, server: ModelApiServer, client: Client, chance: Random, nodes: int, cores: int
    ) -> None:
        super().__init__(server, client, chance)
        self._nodes = [f"{PREFIX}{number}" for number in range(nodes)]
        self._cores = cores
        self._plugins = {node: HamiDevicePlugin(client, node) for node in self._nodes}
        self._arrived: dict[str, asyncio.Queue[Pod]] = {
            node: asyncio.Queue() for node in self._nodes
        }
        self._seen: set[str] = set()
        """UIDs of pods that have arrived at their node."""
        self._silenced: defaultdict[str, int] = defaultdict(int)
        """Node -> how many troubles make its plugin hang."""
        self._speaks = asyncio.Condition()
        self._failing: set[str] = set()

    async def prepare(self) -> None:
        """Create the nodes with their cards."""
        register = {NVIDIA.register_key: nodedevices.encode_json([CARD])}
        room = {
            "cpu": str(self._cores), "memory": "64Gi", "pods": "110",
            NVIDIA.count_resource: str(CARD.count),
        }  # fmt: skip
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        for node in self._nodes:
            labels = {HOSTNAME_LABEL: node}
            await self.create(NODES, node, {"status": status}, labels=labels, annotations=register)

    async def run(self) -> None:
        """Take pods in until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            for node in self._nodes:
                group.create_task(self._admit_all(node, group))

    async def look(self) -> None:
        """Let the pods arrive that were bound, in the order of their names."""
        for pod in self.pods():
            node, uid = pod.spec.node_name, pod.metadata.uid
            if node in self._arrived and uid not in self._seen:
                self._seen.add(uid)
                self._arrived[node].put_nowait(pod)

    async def _admit_all(self, node: str, group: asyncio.TaskGroup) -> None:
        while True:
            pod = await self._arrived[node].get()
            await asyncio.sleep(self.chance.uniform(*_ADMISSION_S))
            async with self._speaks:
                await self._speaks.wait_for(lambda: not self._silenced[node])
            if not self._is_there(pod):
                continue
            if node in self._failing:
                await self._end(pod, BY_TROUBLE)
            elif NVIDIA.count_resource in _limits(pod):
                problem = await self._plugins[node].admit(pod)
                if problem:
                    await self._end(pod, problem)
                else:
                    group.create_task(self._run(pod))
            else:
                group.create_task(self._run(pod))

    def _is_there(self, pod: Pod) -> bool:
        return any(each.metadata.uid == pod.metadata.uid for each in self.pods())

    async def _end(self, pod: Pod, message: str) -> None:
        await self._set(pod, {"phase": "Failed", "reason": REFUSED, "message": message})

    async def _run(self, pod: Pod) -> None:
        ready = {"type": "Ready", "status": "True"}
        others = [
            msgspec.to_builtins(each)
            for each in pod.status.conditions or ()
            if each.type != "Ready"
        ]
        await self._set(pod, {"phase": "Running", "conditions": [*others, ready]})
        seconds = pod.metadata.annotations.get(HOLLOW_RUN_SECONDS_ANNOTATION)
        if seconds is not None:
            await asyncio.sleep(float(seconds))
            await self._set(pod, {"phase": "Succeeded"})

    async def _set(self, pod: Pod, status: dict[str, Any]) -> None:
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        call = self.client.patch(
            PODS, pod.metadata.name, patch, namespace=NAMESPACE, subresource="status"
        )
        await self.attempt(call)

    # -- troubles --------------------------------------------------------------------------------

    async def suffer(self, trouble: Trouble) -> None:
        """Let a plugin hang, or a kubelet fail its pods, for a while."""
        node = self._nodes[trouble.target % len(self._nodes)]
        if trouble.kind is TroubleKind.SILENCE_CARDS:
            self._silenced[node] += 1
            await asyncio.sleep(trouble.seconds)
            self._silenced[node] -= 1
            async with self._speaks:
                self._speaks.notify_all()
        elif trouble.kind is TroubleKind.FAIL_ADMISSION:
            self._failing.add(node)
            await asyncio.sleep(trouble.seconds)
            self._failing.discard(node)


def is_refused(change: Change) -> bool:
    """Whether a kubelet has failed the pod that was written."""
    status = change.version.object.get("status") or {}
    return change.kind.plural == "pods" and status.get("reason") == REFUSED


def _limits(pod: Pod) -> set[str]:
    """Return the resources that the containers of a pod limit."""
    return {
        resource
        for container in pod.spec.containers
        if container.resources is not None
        for resource in container.resources.limits or ()
    }


def lock_of(annotations: dict[str, str]) -> str:
    """Return the lock in the annotations of a node; "" if it is free."""
    return annotations.get(names.NODE_LOCK, "")
