"""Asks for all room that is free at rest: what still holds some of it has not been given back.

Each node gets a pod that asks for all of its free cores, GPUs and devices, and goes before all
others. What is free is counted from the stored objects alone.
"""

from typing import Any, Final

import msgspec

from bindery.api import gpushare
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import (
    GPU_RESOURCE,
    HOSTNAME_LABEL,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
    RACK_LABEL,
)
from bindery.api.quantity import parse
from bindery.kube.client import Client
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.kube.objects.resources import NODES, PODS, PRIORITY_CLASSES
from bindery.kube.objects.watched import Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.needs import bodies
from tests.histories.needs.cards import CARD, PREFIX
from tests.histories.needs.controller import NAMESPACE, is_alive
from tests.histories.needs.judge import gang_of
from tests.histories.plan import Plan
from tests.histories.reading import all_of
from tests.recounting import card_memory, requested

_PROBE: Final = "probe-"
_CLASS: Final = "probes"
_ABOVE_ALL: Final = 1_000_000
Amounts = dict[str, str]
"""Resource -> quantity."""


def held_by_engine(server: ModelApiServer, plan: Plan, engine: Engine) -> list[str]:
    """Return the nodes whose free room an engine that knows the objects does not give away."""
    free = _free_room(server, plan)
    for node, amounts in free.items():
        body = _probe(node, amounts)
        body["metadata"].update(uid=body["metadata"]["name"], creationTimestamp=_NOW)
        body["spec"]["priority"] = _ABOVE_ALL
        probe = PODS.decode(msgspec.json.encode({**body, "status": {"phase": "Pending"}}))
        engine.cluster.apply(Change(EventType.ADDED, probe, None))
    placed = {task.name for draft in engine.cycle() for task in draft.tasks}
    return [
        f"a new engine holds free room of {node}: {amounts}"
        for node, amounts in free.items()
        if f"{_PROBE}{node}" not in placed
    ]


async def ask_for_all(server: ModelApiServer, plan: Plan, client: Client) -> None:
    """Create the pods that ask for all free room."""
    free = _free_room(server, plan)
    body = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": _CLASS}, "value": _ABOVE_ALL, "preemptionPolicy": "Never",
    }  # fmt: skip
    await client.create(PRIORITY_CLASSES, body)
    for node, amounts in free.items():
        await client.create(PODS, _probe(node, amounts), NAMESPACE)


def held_by_schedulers(server: ModelApiServer, plan: Plan) -> list[str]:
    """Return which of these pods wait for room that is still free, and why.

    A plan that was made before they came may take it from them.
    """
    free = _free_room(server, plan)
    return [
        f"free room of {node} is held: {_why(pod)}"
        for pod in all_of(server, PODS)
        if not pod.spec.node_name and pod.metadata.name.startswith(_PROBE)
        for node in (pod.metadata.name.removeprefix(_PROBE),)
        if _has_room(free.get(node, {}), pod)
    ]


def _has_room(free: Amounts, probe: Pod) -> bool:
    asked = probe.spec.containers[0].resources
    assert asked is not None, "probes request what is free"
    return all(
        requested(probe, name) <= parse(free.get(name, "0"), name) for name in asked.requests or ()
    )


def _why(pod: Pod) -> str:
    conditions = pod.status.conditions or ()
    return next((c.message for c in conditions if c.type == "PodScheduled"), "no scheduler saw it")


def _free_room(server: ModelApiServer, plan: Plan) -> dict[str, Amounts]:
    """Return what is free of each node that takes pods of any gang, and has free cores."""
    nodes = [node for node in all_of(server, NODES) if takes_pods(node)]
    pods = [pod for pod in all_of(server, PODS) if pod.spec.node_name and is_alive(pod)]
    exclusive = {g.name for g in plan.gangs if g.needs is not None and g.needs.is_exclusive}
    taken = {
        rack(node)
        for node in nodes
        for pod in pods
        if pod.spec.node_name == node.metadata.name and gang_of(pod) in exclusive
    }
    free = {}
    for node in nodes:
        here = [pod for pod in pods if pod.spec.node_name == node.metadata.name]
        cores = plan.cores * 1000 - sum(requested(pod, "cpu") for pod in here)
        if cores > 0 and rack(node) not in taken:
            further = _free_devices(server, plan, node.metadata.name, here)
            free[node.metadata.name] = {"cpu": f"{cores}m", **further}
    return free


def _free_devices(server: ModelApiServer, plan: Plan, node: str, pods: list[Pod]) -> Amounts:
    if node.startswith(PREFIX):
        memory = CARD.memory_mib - card_memory(pods)
        users = sum(requested(pod, GPU_RESOURCE) // 1000 for pod in pods)
        is_free = memory > 0 and users < CARD.count
        return {GPU_RESOURCE: "1", NVIDIA.memory_resource: str(memory)} if is_free else {}
    groups = {name for pod in pods for name in gpushare.groups(pod.metadata.labels)}
    whole = sum(
        requested(pod, GPU_RESOURCE) // 1000
        for pod in pods
        if not gpushare.groups(pod.metadata.labels)
    )
    offered = sum(
        len(each.spec.devices)
        for each in all_of(server, RESOURCE_SLICES)
        if each.spec.node_name == node
    )
    allocated = sum(
        device.pool == node
        for claim in all_of(server, RESOURCE_CLAIMS)
        if claim.status.allocation is not None
        for device in claim.status.allocation.devices.results
    )
    found = {
        GPU_RESOURCE: plan.gpus - whole - len(groups),
        bodies.EXTENDED_RESOURCE: offered - allocated,
    }
    return {name: str(count) for name, count in found.items() if count > 0}


def rack(node: Node) -> str:
    """Return the rack of a node."""
    return node.metadata.labels.get(RACK_LABEL, node.metadata.name)


def takes_pods(node: Node) -> bool:
    """Whether pods of any gang may come to a node."""
    is_ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
    return is_ready and not node.spec.unschedulable and not node.spec.taints


def _probe(node: str, amounts: Amounts) -> dict[str, Any]:
    limits = {name: amount for name, amount in amounts.items() if name != "cpu"}
    resources = {"requests": amounts, "limits": limits}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": f"{_PROBE}{node}", "namespace": NAMESPACE, "labels": {QUEUE_LABEL: "default"},
            # Pods that are not preemptible get no more GPUs than their queue's quota.
            "annotations": {PREEMPTIBLE_ANNOTATION: "true"},
        },
        "spec": {
            "schedulerName": "bindery", "priorityClassName": _CLASS,
            "preemptionPolicy": "Never", "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0, "nodeSelector": {HOSTNAME_LABEL: node},
            "containers": [{"name": "probe", "image": "probe", "resources": resources}],
        },
    }  # fmt: skip


_NOW: Final = "2027-01-15T08:00:00Z"
