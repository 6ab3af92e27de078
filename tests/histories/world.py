"""Everybody but the product: people, the Job controller, garbage collection.

They reach the API server over the same network as the product, on lines without faults.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, FRACTION_ANNOTATION, RESERVATION_NAMESPACE
from bindery.api.names import (
    API_VERSION,
    GPU_RESOURCE,
    HOLLOW_RUN_SECONDS_ANNOTATION,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
)
from bindery.binder.plugins.gpusharing import admission
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects.resources import (
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
)
from bindery.kube.objects.watched import Node, Pod
from bindery.kube.objects.workloads import WORKLOAD_JOBS, WorkloadJob
from fakes.reservations import GpuDevicePlugins
from tests.histories.apiserver.garbage import GarbageCollector
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.disruption import GANG_LABEL, budget, count_for_budgets
from tests.histories.needs import bodies
from tests.histories.needs.cards import is_refused
from tests.histories.needs.world import NeedsWorld
from tests.histories.people import People
from tests.histories.plan import NODE_PREFIX, PRIORITIES, Act, ActKind, GangPlan, Plan
from tests.histories.reading import all_of
from tests.recounting import ENDED

T = TypeVar("T")

NAMESPACE: Final = "work"
LIMITED: Final = "limited"
"""The queue with a limit that does not change."""
_NAMESPACES: Final = (NAMESPACE, RESERVATION_NAMESPACE)
_QUEUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "org": {"resources": {"cpu": {"quota": "8"}}},
    "a": {"parent": "org", "resources": {"cpu": {"quota": "4", "overQuotaWeight": 1}}},
    "b": {"parent": "org", "resources": {"cpu": {"quota": "4", "overQuotaWeight": 1}}},
}
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_LOOK_S: Final = 0.5


@dataclass
class World:
    """People and controllers. `client` is theirs."""

    plan: Plan
    server: ModelApiServer
    client: Client
    chance: Random
    gangs: dict[str, GangPlan] = field(default_factory=dict)
    """Name -> gang: all that were submitted and not deleted."""
    disturbed: set[str] = field(default_factory=set)
    """Gangs that people have taken a pod from, which no controller replaces."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a pod, a Job or a node has changed."""
    may_have_garbage: bool = False
    """Whether something has been deleted, or has an owner, since the last collection."""
    needs: NeedsWorld = field(init=False)

    def __post_init__(self) -> None:
        """Make those who answer what gangs need."""
        self._gpus = GpuDevicePlugins(self.client, NODE_PREFIX)
        self._people = People(self.server, self.client, NAMESPACE)
        self.needs = NeedsWorld(self.plan, self.server, self.client, self._create_workers)

    def see(self, change: Change) -> None:
        """Take note of a write."""
        self._people.see(change)
        self.needs.see(change)
        if is_refused(change):
            self.disturbed.add(_gang_of(PODS.decode(change.version.body)))
        if change.kind.plural in ("pods", "jobs", "nodes"):
            self.changed.set()
        if change.kind.plural == "pods" and change.writer.caller == "agent":
            # No controller replaces a pod that its node has refused, or that has run and failed.
            pod = change.version.object
            if pod["status"].get("phase") == "Failed":
                gang = pod["metadata"].get("annotations", {}).get(POD_GROUP_ANNOTATION, "")
                self.disturbed.add(gang)
        meta = change.version.object["metadata"]
        if (
            change.type is ChangeType.DELETED
            or "ownerReferences" in meta
            or "deletionTimestamp" in meta
        ):
            self.may_have_garbage = True

    async def prepare(self) -> None:
        """Create what is there before the product starts."""
        for name in _NAMESPACES:
            await self.client.create(NAMESPACES, _object("v1", "Namespace", name))
        for value, name in enumerate(PRIORITIES, 1):
            body = {**_object("scheduling.k8s.io/v1", "PriorityClass", name), "value": 10 * value}
            await self.client.create(PRIORITY_CLASSES, body)
        limited = {"resources": {"cpu": {"limit": str(self.plan.limit_cores)}}}
        least_s = self.plan.min_runtime_s
        times = ("preemptMinRuntimeSeconds", "reclaimMinRuntimeSeconds") if least_s else ()
        for name, rules in {**_QUEUES, LIMITED: limited}.items():
            spec = {**rules, **dict.fromkeys(times, least_s)}
            await self.client.create(QUEUES, {**_object(API_VERSION, "Queue", name), "spec": spec})
        await self.needs.prepare()

    async def live(self) -> None:
        """Carry out the plan, and answer for controllers, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for gang in self.plan.gangs:
                group.create_task(_at(gang.at_s, partial(self._submit, gang)))
            for act in self.plan.acts:
                group.create_task(_at(act.at_s, partial(self._act, act)))
            group.create_task(self._control())
            group.create_task(self._collect_garbage())
            group.create_task(self._give_devices())
            group.create_task(self.needs.live())

    # -- gangs -----------------------------------------------------------------------------------

    async def _submit(self, gang: GangPlan) -> None:
        self.gangs[gang.name] = gang
        if gang.keeps is not None:
            await self._try(
                self.client.create(DISRUPTION_BUDGETS, budget(gang, NAMESPACE), NAMESPACE)
            )
        names = [f"{gang.name}-{index}" for index in range(gang.size)]
        if gang.needs is not None:
            await self.needs.submit_claims(gang.name, gang.needs, names)
        if gang.is_job:
            await self._try(self.client.create(WORKLOAD_JOBS, self._job(gang), NAMESPACE))
            return
        steps: list[Callable[[], Coroutine[Any, Any, object]]] = [
            partial(self.client.create, POD_GROUPS, _group(gang), NAMESPACE),
            *(partial(self.client.create, PODS, _pod(gang, name), NAMESPACE) for name in names),
        ]
        if gang.is_pod_first:
            self.chance.shuffle(steps)
        for step in steps:
            await self._try(step())

    async def _create_workers(self, name: str) -> None:
        """Create the pods of the later stage of a gang, if it is still there."""
        gang = self.gangs.get(name)
        stage = gang.needs.stage if gang is not None and gang.needs is not None else None
        if gang is None or stage is None:
            return
        for index in range(stage.workers):
            pod = _worker(gang, f"{name}-worker-{index}")
            await self._try(self.client.create(PODS, pod, NAMESPACE))

    def _job(self, gang: GangPlan) -> dict[str, Any]:
        labels = _labels(gang)
        template = {"metadata": {"labels": labels}, "spec": _pod(gang, "")["spec"]}
        spec = {"parallelism": gang.size, "completions": gang.size, "template": template}
        return {**_object("batch/v1", "Job", gang.name, labels=labels), "spec": spec}

    async def _delete(self, gang: GangPlan) -> None:
        self.gangs.pop(gang.name, None)
        if gang.is_job:
            await self._try(self.client.delete(WORKLOAD_JOBS, gang.name, NAMESPACE))
            return
        names = [pod.metadata.name for pod in await self._pods() if _gang_of(pod) == gang.name]
        steps = [self.client.delete(PODS, name, NAMESPACE, grace_period_s=0) for name in names]
        steps.append(self.client.delete(POD_GROUPS, gang.name, NAMESPACE))
        self.chance.shuffle(steps)
        for step in steps:
            await self._try(step)

    # -- people ----------------------------------------------------------------------------------

    async def _act(self, act: Act) -> None:
        acts: dict[ActKind, Callable[[Act], Coroutine[Any, Any, None]]] = {
            ActKind.DELETE_GANG: self._delete_gang,
            ActKind.DELETE_POD: self._delete_pod,
            ActKind.RECREATE_GANG: self._recreate_gang,
            ActKind.CORDON: self._cordon,
            ActKind.LOSE_NODE: self._lose_node,
            ActKind.EDIT_QUEUE: self._edit_queue,
            ActKind.SCALE_GANG: self._scale,
            ActKind.EDIT_LIMIT: partial(self._people.edit_limit, LIMITED),
            ActKind.CHANGE_PRIORITY: self._change_priority,
            ActKind.STOP_BINDING: self._stop_binding,
            ActKind.DELETE_BOUND: self._delete_bound,
            ActKind.DELETE_GROUP: self._delete_group,
            ActKind.SILENCE_GPUS: self._silence,
            ActKind.TAKE_ROOM: partial(self._people.take_room, cores=self.plan.cores),
        }
        await acts[act.kind](act)

    async def _delete_gang(self, act: Act) -> None:
        if self.gangs:
            await self._delete(_nth(list(self.gangs.values()), act.target))

    async def _delete_bound(self, act: Act) -> None:
        """Delete a gang that is being bound; of a Job's gang the pods."""
        name = await self._people.next_bound(act)
        pods = all_of(self.server, PODS)
        gangs = {_gang_of(pod) for pod in pods if pod.metadata.name == name} - {""}
        for gang in gangs & self.gangs.keys():
            await self._delete(self.gangs[gang])
        for pod in pods:
            if _gang_of(pod) in gangs - self.gangs.keys():
                meta = pod.metadata
                await self._try(self.client.delete(PODS, meta.name, NAMESPACE, grace_period_s=0))

    async def _delete_group(self, act: Act) -> None:
        if self.gangs:
            name = _nth(list(self.gangs), act.target + 1)
            await self._try(self.client.delete(POD_GROUPS, name, NAMESPACE))

    async def _recreate_gang(self, act: Act) -> None:
        if self.gangs:
            gang = _nth(list(self.gangs.values()), act.target)
            await self._delete(gang)
            await asyncio.sleep(act.seconds / 10)
            await self._submit(gang)

    async def _scale(self, act: Act) -> None:
        if self.gangs:
            gang = _nth(list(self.gangs.values()), act.target)
            self.disturbed |= await self._people.scale(gang, act)

    async def _stop_binding(self, act: Act) -> None:
        self.disturbed |= await self._people.stop_binding(act)

    async def _change_priority(self, act: Act) -> None:
        if self.gangs:
            await self._people.change_priority(_nth(list(self.gangs.values()), act.target), act)

    async def _delete_pod(self, act: Act) -> None:
        pods = await self._pods()
        if pods:
            pod = _nth(pods, act.target)
            self.disturbed.add(_gang_of(pod))
            await self._try(
                self.client.delete(PODS, pod.metadata.name, NAMESPACE, grace_period_s=0)
            )

    async def _cordon(self, act: Act) -> None:
        for closed in (True, False):
            nodes = await self.client.list(NODES)
            if nodes:
                name = _nth(nodes, act.target).metadata.name
                patch = {"spec": {"unschedulable": closed}}
                await self._try(self.client.patch(NODES, name, patch))
            await asyncio.sleep(act.seconds)

    async def _lose_node(self, act: Act) -> None:
        nodes = await self.client.list(NODES)
        if nodes:
            name = _nth(nodes, act.target).metadata.name
            await self._try(self.client.delete(NODES, name))

    async def _edit_queue(self, act: Act) -> None:
        quota = {"quota": str(act.target % 10), "overQuotaWeight": 1}
        patch = {"spec": {"resources": {"cpu": quota}}}
        await self._try(self.client.patch(QUEUES, "ab"[act.target % 2], patch))

    # -- controllers -----------------------------------------------------------------------------

    async def _control(self) -> None:
        """Do what Kubernetes' controllers do, some time after each change."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            await asyncio.sleep(self.chance.uniform(0.01, _LOOK_S))
            for job in all_of(self.server, WORKLOAD_JOBS):
                await self._run_job(job)
            for node in all_of(self.server, NODES):
                await self._admit(node)
            await self._collect_pods()
            await count_for_budgets(self.server, self.client)

    async def _collect_pods(self) -> None:
        """Delete the pods of nodes that are gone, as the pod garbage collector does."""
        nodes = {node.metadata.name for node in all_of(self.server, NODES)}
        for pod in all_of(self.server, PODS):
            if pod.spec.node_name and pod.spec.node_name not in nodes:
                meta = pod.metadata
                self.disturbed.add(_gang_of(pod))
                call = self.client.delete(PODS, meta.name, meta.namespace, grace_period_s=0)
                await self._try(call)

    async def _run_job(self, job: WorkloadJob) -> None:
        """Create the pods that a Job lacks."""
        gang, uid = self.plan_of(job.metadata.name), job.metadata.uid
        mine = [
            pod
            for pod in all_of(self.server, PODS)
            if any(owner.uid == uid for owner in pod.metadata.owner_references)
        ]
        active = [pod for pod in mine if pod.status.phase not in ENDED]
        succeeded = sum(pod.status.phase == "Succeeded" for pod in mine)
        stored = self.server.find("jobs", NAMESPACE, gang.name)
        parallelism = gang.size if stored is None else stored["spec"]["parallelism"]
        lacking = min(parallelism, gang.size - succeeded) - len(active)
        for pod in active[len(active) + lacking :] if lacking < 0 else ():
            await self._try(self.client.delete(PODS, pod.metadata.name, NAMESPACE))
        for _ in range(lacking):
            owner = {
                "apiVersion": "batch/v1", "kind": "Job", "controller": True,
                "name": gang.name, "uid": uid, "blockOwnerDeletion": True,
            }  # fmt: skip
            body = _pod(gang, f"{gang.name}-{self.chance.getrandbits(24):06x}")
            body["metadata"].update(ownerReferences=[owner], labels=_labels(gang))
            del body["metadata"]["annotations"][POD_GROUP_ANNOTATION]
            await self._try(self.client.create(PODS, body, NAMESPACE))

    async def _admit(self, node: Node) -> None:
        """Take the taint from a node that is ready, as the node controller does."""
        is_ready = any(
            c.type == "Ready" and c.status == "True" for c in node.status.conditions or ()
        )
        if is_ready and any(taint.key == _NOT_READY for taint in node.spec.taints or ()):
            patch = {"spec": {"taints": None}}
            await self._try(self.client.patch(NODES, node.metadata.name, patch))

    async def _give_devices(self) -> None:
        async with self._gpus.play():
            await asyncio.Event().wait()

    async def _silence(self, act: Act) -> None:
        self._gpus.silent_nodes.add(f"{NODE_PREFIX}{act.target % self.plan.nodes}")
        await asyncio.sleep(act.seconds)
        self._gpus.speak()

    async def _collect_garbage(self) -> None:
        collector = GarbageCollector(self.server)
        while True:
            await asyncio.sleep(self.chance.uniform(0.1, 8 * _LOOK_S))
            if self.may_have_garbage:
                self.may_have_garbage = False
                collector.collect_all(self.client.environment.now_s())

    def plan_of(self, name: str) -> GangPlan:
        """Return the plan of a gang."""
        return next(gang for gang in self.plan.gangs if gang.name == name)

    async def _pods(self) -> list[Pod]:
        return await self.client.list(PODS, namespace=NAMESPACE)

    @staticmethod
    async def _try(call: Coroutine[Any, Any, object]) -> None:
        """Make a call. That another caller was faster is no error."""
        with suppress(KubeError):
            await call


def _group(gang: GangPlan) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "minMember": gang.minimum, "queue": gang.queue, "stalenessGracePeriodSeconds": 5,
    }  # fmt: skip
    if gang.priority:
        spec["priorityClassName"] = gang.priority
    if gang.preemptibility:
        spec["preemptibility"] = gang.preemptibility
    if gang.needs is not None:
        bodies.add_to_group(spec, gang.needs, _worker(gang, "worker")["spec"])
    return {**_object(API_VERSION, "PodGroup", gang.name), "spec": spec}


def _labels(gang: GangPlan) -> dict[str, str]:
    """Return the labels of a Job's pods."""
    return {QUEUE_LABEL: gang.queue, GANG_LABEL: gang.name}


def _worker(gang: GangPlan, name: str) -> dict[str, Any]:
    """Return the body of a pod of the later stage, or of the gang if it has none."""
    stage = gang.needs.stage if gang.needs is not None else None
    cores = stage.worker_cores if stage is not None else gang.cores
    return _pod(replace(gang, cores=cores), name, bodies.WORKERS)


def _pod(gang: GangPlan, name: str, sub_group: str = bodies.LEADERS) -> dict[str, Any]:
    limits = {GPU_RESOURCE: str(gang.gpus)} if gang.gpus else {}
    requests = {"cpu": str(gang.cores), **limits}
    container = {
        "name": "worker", "image": "worker", "resources": {"requests": requests, "limits": limits},
    }  # fmt: skip
    annotations = {POD_GROUP_ANNOTATION: gang.name}
    if gang.is_job and gang.preemptibility:
        annotations[PREEMPTIBLE_ANNOTATION] = "false"
    if gang.run_s is not None:
        annotations[HOLLOW_RUN_SECONDS_ANNOTATION] = f"{gang.run_s:.3f}"
    if gang.fraction:
        annotations[FRACTION_ANNOTATION] = gang.fraction
        annotations[CONFIG_MAP_ANNOTATION] = f"{name}-shared-gpu"  # the webhook would draw it
    spec: dict[str, Any] = {
        "schedulerName": "bindery", "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0, "containers": [container],
    }  # fmt: skip
    if gang.priority:
        spec["priorityClassName"] = gang.priority
    labels = {GANG_LABEL: gang.name}
    body = {**_object("v1", "Pod", name, annotations=annotations, labels=labels), "spec": spec}
    if gang.needs is not None:
        bodies.add_to_pod(body, gang.name, gang.needs, sub_group)
    return admission.prepared(body) if gang.fraction else body


def _object(api_version: str, kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def _gang_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")


def _nth(items: list[T], number: int) -> T:
    return items[number % len(items)]


async def _at(at_s: float, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await asyncio.sleep(max(0.0, at_s - asyncio.get_running_loop().time()))
    await do()
