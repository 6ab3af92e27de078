"""Recounts, at each binding, what nodes, GPUs and queues hold, from the pods alone.

One watch over all pods, whose events come in the order in which the API server stored them: what
is counted at a binding is what was true at that moment. A list, after the API server was down, has
no such order: its bindings are counted when all of it has been taken in. Nothing of the scheduler's
own arithmetic is used.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bindery.api.names import CHARGED_QUEUE_ANNOTATION, POD_GROUP_ANNOTATION
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.reflector import Change, EventType, Reflector
from tests.e2e.chaos.churn import Churn
from tests.e2e.chaos.figures import Figures
from tests.e2e.chaos.ground import CARD, LIMITED_CORES, Ground
from tests.recounting import ENDED, card_problems, gpu_problems, requested


class Recount:
    """All pods of the attack as a watch shows them, and what must hold at each binding."""

    def __init__(self, ground: Ground, churn: Churn, figures: Figures) -> None:
        self._ground, self._churn, self._figures = ground, churn, figures
        self.pods: dict[str, Pod] = {}
        """UID -> pod, reservation pods too."""
        self.ever_bound: defaultdict[str, set[str]] = defaultdict(set)
        """Gang -> UIDs of its pods that were ever bound."""
        self._nodes: dict[str, str] = {}
        """UID of every pod that was ever bound -> its node."""
        self._queues: dict[str, str] = {}
        """Gang -> queue."""
        self._reflector = Reflector(ground.client, PODS, self._see)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["Recount"]:
        """Watch while the body runs."""
        task = asyncio.create_task(self._reflector.run())
        try:
            await self._reflector.synced.wait()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def on(self, node: str) -> list[Pod]:
        """Return the pods that hold room on `node`."""
        return [
            pod
            for pod in self.pods.values()
            if pod.spec.node_name == node and pod.status.phase not in ENDED
        ]

    def _see(self, change: Change[Pod]) -> None:
        pod, uid = change.object, change.object.metadata.uid
        is_ours = pod.metadata.namespace == self._ground.corner.namespace
        if not is_ours and not pod.spec.node_name.startswith(self._ground.corner.namespace):
            return
        before = self.pods.get(uid)
        if change.type is EventType.DELETED:
            self.pods.pop(uid, None)
            return
        self.pods[uid] = pod
        if is_ours:
            self._note(pod, before)
        if pod.spec.node_name and (before is None or not before.spec.node_name):
            self._bound(pod, is_ours)

    def _note(self, pod: Pod, before: Pod | None) -> None:
        name = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
        submitted = self._churn.gangs.get(name)
        if submitted is not None:
            self._queues[name] = submitted.gang.queue
        leaves = pod.metadata.deletion_timestamp is not None
        if leaves and (before is None or before.metadata.deletion_timestamp is None):
            is_evicted = any(c.type == "DisruptionTarget" for c in pod.status.conditions or ())
            self._figures.evictions += is_evicted
            if submitted is not None:
                submitted.is_disturbed = True

    def _bound(self, pod: Pod, is_ours: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if self._nodes.setdefault(uid, node) != node:
            self._figures.problem(f"pod {pod.metadata.name} is on {node} and on {self._nodes[uid]}")
        if is_ours:
            self._figures.pods_bound += 1
            gang = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
            self.ever_bound[gang].add(uid)
            submitted = self._churn.gangs.get(gang)
            if submitted is not None and len(self.ever_bound[gang]) == max(1, submitted.minimum):
                self._figures.gangs_bound += 1
        if self._reflector.is_listing:
            asyncio.get_running_loop().call_soon(self._judge, pod)
        else:
            self._judge(pod)

    def _judge(self, pod: Pod) -> None:
        """Report what must not be on the node and in the queue of a pod that was just bound."""
        node = pod.spec.node_name
        after = f"after {pod.metadata.name} was bound to {node}"
        for text in (*self._node_problems(node), *self._queue_problems(pod)):
            self._figures.problem(f"{text} {after}")

    def _node_problems(self, node: str) -> list[str]:
        found, pods = [], self.on(node)
        used = sum(requested(pod, "cpu") for pod in pods)
        if used > self._ground.cores_of(node):
            who = ", ".join(f"{pod.metadata.name} {requested(pod, 'cpu')}m" for pod in pods)
            cores = self._ground.cores_of(node)
            found.append(f"{used}m cores of {cores}m are taken on {node} ({who})")
        if node in self._ground.hami:
            return found + card_problems(node, pods, CARD.memory_mib, CARD.count)
        return found + gpu_problems(node, pods, self._ground.gpus_of(node))

    def _queue_problems(self, bound: Pod) -> list[str]:
        if not self._is_limited(bound):
            return []
        holders = [
            pod
            for pod in self.pods.values()
            if pod.spec.node_name and pod.status.phase not in ENDED and self._is_limited(pod)
        ]
        held = sum(requested(pod, "cpu") for pod in holders)
        if held <= LIMITED_CORES * 1000:
            return []
        who = ", ".join(sorted(self._charged(pod) for pod in holders))
        return [f"{held}m cores run in a queue with a limit of {LIMITED_CORES} ({who})"]

    def _charged(self, pod: Pod) -> str:
        """Describe a pod by its name, its cores and the queue that the binder recorded."""
        record = pod.metadata.annotations.get(CHARGED_QUEUE_ANNOTATION, "no record")
        gang = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
        there = "" if gang in self._churn.gangs else " being deleted"
        queue = record.removeprefix(f"{self._ground.corner.namespace}-")
        return f"{pod.metadata.name} {requested(pod, 'cpu')}m {queue}{there}"

    def _is_limited(self, pod: Pod) -> bool:
        gang = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
        return self._queues.get(gang) == self._ground.queues["limited"]
