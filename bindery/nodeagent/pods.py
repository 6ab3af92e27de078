"""Runs and ends the pods on hollow nodes.

Started by `agent`; gets the next step from `lifecycle` and writes the patch from `pod_status`. One
watch holds all bound pods; pods on nodes that are not registered are ignored. Every write and
delete of a pod carries its UID.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

import structlog

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, InvalidError, NotFoundError
from bindery.kube.events.recorder import EventRecorder, reference_to
from bindery.kube.http.requests import PatchKind
from bindery.kube.watches.reflector import Change, EventType, Reflector
from bindery.nodeagent import metrics, pod_status
from bindery.nodeagent.addresses import AddressPool, NoAddressLeftError
from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.lifecycle import (
    STEP_LABELS,
    Expire,
    Finish,
    ReadinessChange,
    Refuse,
    Remove,
    Rest,
    Start,
    Step,
    Stop,
    Wait,
    WriteRecord,
    decide,
    malformed_annotations,
)
from bindery.nodeagent.pod_objects import HOLLOW_PODS, AgentPod
from bindery.nodeagent.pod_status import Patch
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.work import WorkQueue

_WORKERS: Final = 32
"""Maximum number of concurrent writes; more would only wait in the API server."""
_RECHECK_S: Final = 1.0
"""Pause after a conflict. Meanwhile the watch shows whether the pod was replaced."""
_NO_ADDRESS_S: Final = 30.0

log = structlog.get_logger(__name__)


class PodKey(NamedTuple):
    """Namespace and name of a pod: the key of the queue."""

    namespace: str
    name: str


class PodKeeper:
    """Runs, ends and deletes the pods of nodes; `registered` returns such a node by name."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        *,
        registered: Callable[[str], ManagedNode | None],
        kubelets: Kubelets,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._client, self._events, self._clock = client, events, clock
        self._registered, self._kubelets = registered, kubelets
        self._early: list[ManagedNode] = []  # registered before the pods were known
        self._addresses = AddressPool()
        self._by_node: defaultdict[str, dict[PodKey, None]] = defaultdict(dict)
        """Pods in the order in which they came."""
        self._written: dict[PodKey, AgentPod] = {}  # own last writes, until the watch shows them
        self._complained: dict[PodKey, list[str]] = {}  # texts that events were written about
        self._queue = WorkQueue("pods", self._handle, workers=_WORKERS, random=random)
        self._reflector = Reflector(
            client, HOLLOW_PODS, self._on_change, field_selector="spec.nodeName!="
        )

    @property
    def healthy(self) -> bool:
        """Whether the watch is alive."""
        return self._reflector.healthy()

    async def run(self) -> None:
        """Run the pods; does not return."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            # The addresses that pods already carry are known only after the first list.
            await self._reflector.synced.wait()
            for node in self._early:
                self.look_after(node)
            self._early.clear()
            group.create_task(self._queue.run())

    def look_after(self, node: ManagedNode) -> None:
        """Run the pods of `node`, which has just been registered."""
        if not self._reflector.synced.is_set():
            self._early.append(node)
            return
        keys = self._by_node.get(node.name, ())
        self._kubelets.open(node, (self._reflector.objects[key] for key in keys))
        for key in keys:
            self._queue.add(key)

    def report(self) -> None:
        """Update the gauges."""
        metrics.WORK_WAITING.labels("pods").set(self._queue.waiting)

    def _on_change(self, change: Change[AgentPod]) -> None:
        pod = change.object
        key = PodKey(pod.metadata.namespace, pod.metadata.name)
        if change.type is EventType.DELETED or pod.status.phase in ENDED_POD_PHASES:
            self._kubelets.release(pod.spec.node_name, pod.metadata.uid)
        if change.type is EventType.DELETED:
            self._addresses.release(pod.metadata.uid)
            self._by_node[pod.spec.node_name].pop(key, None)
            self._written.pop(key, None)
            self._complained.pop(key, None)
            self._queue.forget(key)
            return
        written = self._written.get(key)
        if written is not None and not _is_newer(written, pod):
            del self._written[key]
        if pod.status.pod_ip and not pod.spec.host_network:
            self._addresses.reserve(pod.metadata.uid, pod.status.pod_ip)
        self._by_node[pod.spec.node_name][key] = None
        if self._registered(pod.spec.node_name) is not None:
            self._queue.add(key)

    async def _handle(self, key: PodKey) -> float | None:
        pod = self._written.get(key) or self._reflector.objects.get(key)
        node = self._registered(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None:
            return None
        self._complain(key, pod)
        now = self._clock()
        answer = self._refusal(key, pod, node) or self._new_record(pod, node)
        match answer or decide(pod, now):
            case Rest():
                return None
            case Wait(until_s):
                return until_s - now
            case decision:
                return await self._attempt(decision, key, pod, node)

    def _refusal(self, key: PodKey, pod: AgentPod, node: ManagedNode) -> Refuse | None:
        """Ask the node's kubelet whether a pod may run; return its refusal, or None."""
        if pod.status.phase in ENDED_POD_PHASES or pod.metadata.deletion_timestamp is not None:
            return None
        answer = self._kubelets.admit(node, pod)
        for uid in self._kubelets.stopped(node):
            for other in self._by_node[node.name]:
                found = self._reflector.objects.get(other)
                if other != key and found is not None and found.metadata.uid == uid:
                    self._queue.add(other)
        return None if answer.admit else Refuse(answer)

    def _new_record(self, pod: AgentPod, node: ManagedNode) -> WriteRecord | None:
        if pod.status.phase != "Running":
            return None
        held = self._kubelets.new_record(node, pod)
        return None if held is None else WriteRecord(held)

    async def _attempt(
        self, step: Step, key: PodKey, pod: AgentPod, node: ManagedNode
    ) -> float | None:
        """Execute `step`; return the seconds until the next check, None to wait for a change."""
        try:
            await self._carry_out(step, key, pod, node)
        except NotFoundError:
            pass  # the watch will deliver the deletion
        except ConflictError:
            return _RECHECK_S
        except InvalidError as error:
            log.warning(
                "a pod's status was refused",
                pod=key.name, namespace=key.namespace, error=str(error),
            )  # fmt: skip
        except NoAddressLeftError as error:
            self._events.warning(reference_to(HOLLOW_PODS, pod), "NoAddressLeft", str(error))
            return _NO_ADDRESS_S
        else:
            metrics.POD_STEPS.labels(STEP_LABELS[type(step)]).inc()
        return None  # the write comes back as an event, which leads to the next step

    async def _carry_out(self, step: Step, key: PodKey, pod: AgentPod, node: ManagedNode) -> None:
        now = self._clock()
        match step:
            case Refuse(answer):
                await self._write(key, pod_status.refused(pod, answer, now))
                reference = reference_to(HOLLOW_PODS, pod)
                self._events.warning(reference, answer.reason, answer.message)
            case WriteRecord(held):
                await self._write(key, pod_status.recorded(pod, held))
            case Start():
                address = node.address
                if not pod.spec.host_network:
                    address = self._addresses.take(pod.metadata.uid, pod.spec.node_name)
                record = self._kubelets.held(node, pod.metadata.uid)
                patch = pod_status.running(pod, node.address, address, now, held=record)
                await self._write(key, patch)
            case ReadinessChange():
                await self._write(key, pod_status.turned(pod, now))
            case Expire():
                await self._write(key, pod_status.expired(pod, now))
            case Finish(exit_code) | Stop(exit_code):
                await self._write(key, pod_status.ended(pod, exit_code, now))
            case Remove():
                await self._client.delete(
                    HOLLOW_PODS, key.name, key.namespace, uid=pod.metadata.uid, grace_period_s=0
                )

    async def _write(self, key: PodKey, patch: Patch) -> None:
        written = await self._client.patch(
            HOLLOW_PODS,
            key.name,
            patch,
            namespace=key.namespace,
            subresource="status",
            kind=PatchKind.STRATEGIC,
        )
        if written.status.phase in ENDED_POD_PHASES:
            self._kubelets.release(written.spec.node_name, written.metadata.uid)
        # The watch may lag behind: use this agent's own write until the watch delivers it.
        known = self._reflector.objects.get(key)
        if known is not None and _is_newer(written, known):
            self._written[key] = written

    def _complain(self, key: PodKey, pod: AgentPod) -> None:
        """Write an event about each malformed annotation, once for each text."""
        problems = [str(problem) for problem in malformed_annotations(pod)]
        if problems == self._complained.get(key, []):
            return
        self._complained[key] = problems
        for problem in problems:
            text = f"{problem}; the pod runs on without it"
            self._events.warning(reference_to(HOLLOW_PODS, pod), "MalformedAnnotation", text)


def _is_newer(pod: AgentPod, other: AgentPod) -> bool:
    """Return whether `pod` is a later state of the same object as `other`.

    Resource versions of one kind are ordered numbers (KEP-5504, Kubernetes 1.35).
    """
    return pod.metadata.uid == other.metadata.uid and int(pod.metadata.resource_version) > int(
        other.metadata.resource_version
    )
