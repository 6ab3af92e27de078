"""What of volumes, devices, cards, stages and kept room must not be left at rest."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from bindery.api.hami import assignment, names
from bindery.api.hami.lock import decode
from bindery.api.names import HOSTNAME_LABEL, QUEUE_LABEL, RACK_LABEL, SUB_GROUP_LABEL
from bindery.binder.plugins.volumes.writes import CHOSEN_FOR, SELECTED_NODE
from bindery.kube.objects.claims import FINALIZER, RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.storage import CLAIMS, VOLUMES
from bindery.kube.objects.watched import Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.needs import bodies
from tests.histories.needs.cards import lock_of
from tests.histories.needs.controller import NAMESPACE, is_alive
from tests.histories.needs.judge import gang_of
from tests.histories.plan import Plan
from tests.histories.reading import all_of
from tests.recounting import requested

_PROBE = "probe-"
_ABOVE_ALL = 1_000_000


def left_over(
    server: ModelApiServer, plan: Plan, pods: list[Pod], disturbed: set[str]
) -> list[str]:
    """Return what is left that must not be, and which later stages are bound in part."""
    return [
        *_of_volumes(server),
        *_of_devices(server, pods),
        *_of_cards(server, pods),
        *_of_stages(plan, pods, disturbed),
    ]


def _of_volumes(server: ModelApiServer) -> Iterator[str]:
    for claim in all_of(server, CLAIMS):
        if not claim.spec.volume_name:
            for key in (SELECTED_NODE, CHOSEN_FOR):
                if key in claim.metadata.annotations:
                    yield f"claim {claim.metadata.name} is not bound and has {key}"
    ever_bound = {
        change.key[1]
        for change in server.store.of(server.kind("persistentvolumes")).changes
        if (change.version.object.get("status") or {}).get("phase") == "Bound"
    }
    for volume in all_of(server, VOLUMES):
        reference = volume.spec.claim_ref
        if reference is not None and volume.metadata.name not in ever_bound:
            yield f"volume {volume.metadata.name} is kept for claim {reference.name}"


def _of_devices(server: ModelApiServer, pods: list[Pod]) -> Iterator[str]:
    by_uid = {pod.metadata.uid: pod for pod in pods}
    for claim in all_of(server, RESOURCE_CLAIMS):
        yield from _of_claim(claim, by_uid)
    for pod in pods:
        if not pod.spec.node_name and pod.status.extended_resource_claim_status is not None:
            yield f"{pod.metadata.name} is not bound and shows a claim"


def _of_claim(claim: ResourceClaim, pods: dict[str, Pod]) -> Iterator[str]:
    name, status = claim.metadata.name, claim.status
    for user in status.reserved_for:
        pod = pods.get(user.uid)
        if pod is None or not pod.spec.node_name:
            what = "is gone" if pod is None else "is not bound"
            yield f"claim {name} is reserved for {user.name}, which {what}"
    if status.allocation is not None and not status.reserved_for:
        yield f"claim {name} is allocated to no pod"
    if status.allocation is None and FINALIZER in claim.metadata.finalizers:
        yield f"claim {name} is not allocated and protected"


def _of_cards(server: ModelApiServer, pods: list[Pod]) -> Iterator[str]:
    by_name = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
    for node in all_of(server, NODES):
        text = lock_of(node.metadata.annotations)
        if not text:
            continue
        lock = decode(text)
        holder = by_name.get((lock.namespace, lock.name))
        is_here = holder is not None and holder.spec.node_name == node.metadata.name
        phase = holder.metadata.annotations.get(names.BIND_PHASE) if holder is not None else ""
        is_over = phase != names.BindPhase.ALLOCATING
        if holder is None or not is_here or is_over or not is_alive(holder):
            yield f"{node.metadata.name} is locked by {text}"
    for pod in pods:
        if not pod.spec.node_name:
            keys = {*assignment.PROTOCOL_KEYS, names.DEVICES_RECORD} & pod.metadata.annotations.keys()
            for key in sorted(keys):
                yield f"{pod.metadata.name} is not bound and has {key}"


def _of_stages(plan: Plan, pods: list[Pod], disturbed: set[str]) -> Iterator[str]:
    bound: Counter[str] = Counter()
    for pod in pods:
        if pod.metadata.labels.get(SUB_GROUP_LABEL) == bodies.WORKERS:
            bound[gang_of(pod)] += bool(pod.spec.node_name) and pod.status.phase != "Failed"
    for gang in plan.gangs:
        stage = gang.needs.stage if gang.needs is not None else None
        if stage is not None and gang.name not in disturbed:
            if 0 < bound[gang.name] < stage.workers:
                yield f"{bound[gang.name]} of {stage.workers} workers of {gang.name} are bound"


# -- room -------------------------------------------------------------------------------------------


def held_room(server: ModelApiServer, plan: Plan, engine: Engine) -> list[str]:
    """Return the nodes whose free cores an engine that knows the objects does not give away.

    Each node gets a pod that asks for all of its cores that are free, and goes before all others.
    """
    free = _free_cores(server, plan)
    for node, thousandths in free.items():
        probe = PODS.decode(_probe(node, thousandths))
        engine.cluster.apply(Change(EventType.ADDED, probe, None))
    placed = {
        task.name for draft in engine.cycle() for task in draft.tasks if task.name.startswith(_PROBE)
    }
    return [
        f"a new engine holds {thousandths}m free cores of {node}"
        for node, thousandths in free.items()
        if f"{_PROBE}{node}" not in placed
    ]


def _free_cores(server: ModelApiServer, plan: Plan) -> dict[str, int]:
    """Return the thousandths of cores that are free, of each node that takes pods."""
    exclusive = {g.name for g in plan.gangs if g.needs is not None and g.needs.is_exclusive}
    nodes = {node.metadata.name: node for node in all_of(server, NODES) if _takes_pods(node)}
    free = dict.fromkeys(nodes, plan.cores * 1000)
    taken: set[str] = set()
    """Racks that belong to a gang."""
    for pod in all_of(server, PODS):
        name = pod.spec.node_name
        if name in nodes and is_alive(pod):
            free[name] -= requested(pod, "cpu")
            if gang_of(pod) in exclusive:
                taken.add(_rack(nodes[name]))
    return {
        name: left for name, left in free.items() if left > 0 and _rack(nodes[name]) not in taken
    }


def _rack(node: Node) -> str:
    return node.metadata.labels.get(RACK_LABEL, node.metadata.name)


def _takes_pods(node: Node) -> bool:
    is_ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
    return is_ready and not node.spec.unschedulable and not node.spec.taints


def _probe(node: str, thousandths: int) -> bytes:
    name = f"{_PROBE}{node}"
    body = {
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": name,
            "creationTimestamp": "2027-01-15T08:00:00Z", "labels": {QUEUE_LABEL: "default"},
        },
        "spec": {
            "schedulerName": "bindery", "priority": _ABOVE_ALL, "preemptionPolicy": "Never",
            "nodeSelector": {HOSTNAME_LABEL: node},
            "containers": [
                {"name": "probe", "resources": {"requests": {"cpu": f"{thousandths}m"}}}
            ],
        },
        "status": {"phase": "Pending"},
    }  # fmt: skip
    return msgspec.json.encode(body)
