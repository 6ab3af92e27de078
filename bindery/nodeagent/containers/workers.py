"""A worker for each pod of the node, and for each pod that only the runtime still has.

One watch has the pods that are bound to the node; the runtime is listed every second, and the
workers of pods whose sandboxes or containers have changed look again (the kubelet's PLEG).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from bindery.kube.watches.reflector import Change, EventType, Reflector
from bindery.nodeagent.admission import PREEMPTED
from bindery.nodeagent.containers import labels, logfiles
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.killing import Killer
from bindery.nodeagent.containers.parts import NodeParts
from bindery.nodeagent.containers.podspec import RUN_PODS, RunPod
from bindery.nodeagent.containers.worker import PodWorker
from bindery.nodecore.cgroups.manager import CgroupError

RELIST_S: Final = 1.0
HEALTHY_S: Final = 180.0
"""Seconds without an answer of the runtime after which it counts as down, as in the kubelet."""

Marks = Mapping[str, frozenset[tuple[str, int]]]
"""Pod UID -> the ids and states of its sandboxes and containers."""

log = structlog.get_logger(__name__)


class PodWorkers:
    """Runs all pods of a node. `registered`: set when the Node object exists."""

    def __init__(self, parts: NodeParts, registered: asyncio.Event) -> None:
        self._parts, self._registered = parts, registered
        self._killer = Killer(parts)
        self._workers: dict[str, PodWorker] = {}
        self._orphans: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._waiting: dict[str, RunPod] = {}
        self._marks: Marks = {}
        self._has_listed = False
        self._answered_s = parts.clock()
        name = parts.resources.node.name
        self._reflector = Reflector(
            parts.client, RUN_PODS, self._on_change, field_selector=f"spec.nodeName={name}"
        )

    @property
    def healthy(self) -> bool:
        """Whether the watch is alive and the runtime answers."""
        return self._reflector.healthy() and self.runtime_problem == ""

    @property
    def runtime_problem(self) -> str:
        """Why the node cannot run pods; empty if it can."""
        silent_s = self._parts.clock() - self._answered_s
        if silent_s < HEALTHY_S:
            return ""
        return f"PLEG is not healthy: pleg was last seen active {silent_s:.0f}s ago"

    def find(self, namespace: str, name: str) -> RunPod | None:
        """Return the pod of this node with a name, None if there is none."""
        return self._reflector.objects.get((namespace, name))

    async def evict(self, uids: Sequence[str]) -> None:
        """End pods in favour of a critical one; return when they have ended."""
        workers = [self._workers[uid] for uid in uids if uid in self._workers]
        for worker in workers:
            worker.preempt(PREEMPTED)
        for worker in workers:
            await worker.ended.wait()

    async def run(self) -> None:
        """Run the pods; does not return."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._reflector.run())
            await self._reflector.synced.wait()
            await self._registered.wait()
            present = list(self._reflector.objects.values())
            self._parts.resources.open(present)
            self._parts.cgroups.prepare()
            self._parts.volumes.open(present)
            waiting, self._waiting = self._waiting, {}
            for pod in waiting.values():
                self._run(pod)
            group.create_task(self._relist())

    def _on_change(self, change: Change[RunPod]) -> None:
        pod = change.object
        uid = pod.metadata.uid
        if not self._parts.resources.is_open:
            if change.type is EventType.DELETED:
                self._waiting.pop(uid, None)
            else:
                self._waiting[uid] = pod
            return
        worker = self._workers.get(uid)
        if change.type is EventType.DELETED:
            if worker is not None:
                worker.update(pod)
                worker.gone()
        elif worker is not None:
            worker.update(pod)
        else:
            self._run(pod)

    def _run(self, pod: RunPod) -> None:
        assert self._group is not None
        worker = self._workers[pod.metadata.uid] = PodWorker(pod, self._parts)
        self._group.create_task(self._follow(worker))

    async def _follow(self, worker: PodWorker) -> None:
        await worker.run()
        self._workers.pop(worker.pod.metadata.uid, None)

    async def _relist(self) -> None:
        while True:
            try:
                marks = await self._list()
                self._answered_s = self._parts.clock()
            except RuntimeCallError as error:
                log.warning("the runtime does not answer", error=str(error))
            else:
                self._compare(marks)
            await asyncio.sleep(RELIST_S)

    async def _list(self) -> Marks:
        found: dict[str, set[tuple[str, int]]] = {}
        for sandbox in await self._parts.runtime.sandboxes():
            uid = sandbox.labels.get(labels.POD_UID, "")
            found.setdefault(uid, set()).add((sandbox.id, sandbox.state))
        for container in await self._parts.runtime.containers():
            uid = container.labels.get(labels.POD_UID, "")
            found.setdefault(uid, set()).add((container.id, container.state))
        found.pop("", None)  # not of pods
        return {uid: frozenset(each) for uid, each in found.items()}

    def _compare(self, marks: Marks) -> None:
        before, self._marks = self._marks, marks
        if self._has_listed and not self._orphans:
            # No container is left that uses volumes of a pod without a worker.
            self._parts.volumes.have_all()
        self._has_listed = True
        for uid in before.keys() | marks.keys():
            worker = self._workers.get(uid)
            if worker is not None:
                if before.get(uid) != marks.get(uid):
                    worker.wake()
            elif uid in marks and uid not in self._orphans and self._group is not None:
                self._orphans[uid] = self._group.create_task(self._end_orphan(uid))
        for uid in self._parts.cgroups.left() - self._workers.keys() - marks.keys():
            self._remove_cgroup(uid)
        try:
            logfiles.remove_others(self._parts.places.logs, self._workers.keys() | marks.keys())
        except OSError as error:
            log.warning("logs of a pod stay", error=str(error))

    async def _end_orphan(self, uid: str) -> None:
        try:
            await self._killer.orphan(uid)
        except RuntimeCallError as error:
            log.warning("what is left of a pod stays", uid=uid, error=str(error))
        finally:
            self._orphans.pop(uid, None)

    def _remove_cgroup(self, uid: str) -> None:
        try:
            self._parts.cgroups.remove(uid)
        except (CgroupError, OSError) as error:
            log.debug("a cgroup stays", uid=uid, error=str(error))
