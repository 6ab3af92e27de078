"""What people do to gangs that run: scale them, change their priority and their queue's limit.

The other acts are in `world`, which calls these.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, QUEUES
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.plan import PRIORITIES, QUIET_AFTER_S, Act, GangPlan
from tests.histories.reading import all_of

OTHER_SCHEDULER: Final = "other"
"""The scheduler of pods that take room."""


class People:
    """People, who act upon the gangs that are there."""

    def __init__(self, server: ModelApiServer, client: Client, namespace: str) -> None:
        self._server, self._client, self._namespace = server, client, namespace
        self._requested, self._bound = asyncio.Event(), asyncio.Event()
        self._last_bound = ""
        """The pod that was bound last."""

    def see(self, change: Change) -> None:
        """Take note of a write."""
        if change.kind.plural == "bindrequests" and change.type is ChangeType.ADDED:
            self._requested.set()
        if change.writer.subresource == "binding":
            _, self._last_bound = change.key
            self._bound.set()

    async def stop_binding(self, act: Act) -> frozenset[str]:
        """Delete the next BindRequest or a pod in it; return the gang that lacks the pod."""
        if not await _soon_after(self._requested, act.seconds / 1000):
            return frozenset()
        open_ = [each for each in all_of(self._server, BIND_REQUESTS) if not each.is_final]
        if not open_:
            return frozenset()
        request = open_[-1]
        statements = request.spec.statements
        if act.target % 2 or not statements:
            name, namespace = request.metadata.name, request.metadata.namespace
            await _try(self._client.delete(BIND_REQUESTS, name, namespace))
            return frozenset()
        group, name = statements[0].pod_group, statements[0].pods[0].pod_name
        await self._replace(name)
        return frozenset({group.name} if group is not None else ())

    async def next_bound(self, act: Act) -> str | None:
        """Return the next pod that is bound, some milliseconds later; None if none is."""
        return self._last_bound if await _soon_after(self._bound, act.seconds / 1000) else None

    async def _replace(self, name: str) -> None:
        """Delete a pod, and create another one of its name at once, as a StatefulSet does."""
        stored = self._server.find("pods", self._namespace, name)
        await _try(self._client.delete(PODS, name, self._namespace, grace_period_s=0))
        if stored is None or stored["spec"].get("nodeName"):
            return
        first = next(
            change.version.object
            for change in self._server.store.of(self._server.kind("pods")).changes
            if change.version.object["metadata"]["uid"] == stored["metadata"]["uid"]
        )
        meta = first["metadata"]  # without what the binder has written since
        kept = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
        head = {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": first["spec"]}
        await _try(self._client.create(PODS, head, self._namespace))

    async def scale(self, gang: GangPlan, act: Act) -> frozenset[str]:
        """Change the size of a gang; return the PodGroups that may lack pods for ever now."""
        number = act.target % gang.size + 1
        if not gang.is_job:
            patch = {"spec": {"minMember": number}}
            await _try(self._client.patch(POD_GROUPS, gang.name, patch, namespace=self._namespace))
            return frozenset({gang.name} if number > gang.minimum else ())
        patch = {"spec": {"parallelism": number}}
        await _try(self._client.patch(WORKLOAD_JOBS, gang.name, patch, namespace=self._namespace))
        return frozenset(
            group.metadata.name
            for group in all_of(self._server, POD_GROUPS)
            if any(owner.name == gang.name for owner in group.metadata.owner_references)
        )

    async def edit_limit(self, queue: str, act: Act) -> None:
        """Change the limit of a queue."""
        patch = {"spec": {"resources": {"cpu": {"limit": str(act.target % 8 + 1)}}}}
        await _try(self._client.patch(QUEUES, queue, patch))

    async def change_priority(self, gang: GangPlan, act: Act) -> None:
        """Give a PodGroup another class."""
        patch = {"spec": {"priorityClassName": PRIORITIES[act.target % len(PRIORITIES)]}}
        await _try(self._client.patch(POD_GROUPS, gang.name, patch, namespace=self._namespace))

    async def take_room(self, act: Act, cores: int) -> None:
        """Let another scheduler's pod run on a node for a while."""
        nodes = all_of(self._server, NODES)
        if not nodes:
            return
        name = f"other-{act.target}"
        requests = {"cpu": str(act.target % cores + 1)}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "schedulerName": OTHER_SCHEDULER,
                "nodeName": nodes[act.target % len(nodes)].metadata.name,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "worker", "image": "worker", "resources": {"requests": requests}}
                ],
            },
        }
        await _try(self._client.create(PODS, body, self._namespace))
        await asyncio.sleep(act.seconds)
        await _try(self._client.delete(PODS, name, self._namespace, grace_period_s=0))


async def _soon_after(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the next `event`, and `seconds` longer; return whether it came before the rest."""
    event.clear()
    try:
        async with asyncio.timeout(QUIET_AFTER_S - asyncio.get_running_loop().time()):
            await event.wait()
            await asyncio.sleep(seconds)
    except TimeoutError:
        return False
    return True


async def _try(call: Coroutine[Any, Any, object]) -> None:
    """Make a call. That another caller was faster is no error."""
    with suppress(KubeError):
        await call
