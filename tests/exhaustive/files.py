"""Worlds as scenario files."""

from typing import Any

from tests.exhaustive.worlds import HOST, LEVELS, UNLIMITED, Job, Node, Part, Pod, Queue, World

ACTIONS = ("allocate", "reclaim", "preempt")
_DRIVER = "device.example.com"
_CLASS = "device"


def scenario_of(world: World) -> dict[str, Any]:
    """Return `world` as a scenario."""
    document: dict[str, Any] = {
        "name": f"world {world.seed}",
        "config": {"actions": list(ACTIONS)},
        "nodes": [_node(node) for node in world.nodes],
        "topologies": [{"name": "dc", "levels": list(LEVELS)}],
        "queues": [_queue(queue) for queue in world.queues],
        "jobs": [_job(job) for job in world.jobs],
    }
    claims = {
        (job.name, pod.claim): pod.node for job in world.jobs for pod in job.pods if pod.claim
    }
    if claims:
        document |= _devices(world)
        taken: dict[str, int] = {}
        document["resourceClaims"] = [
            _claim(name, node, taken) for (_, name), node in claims.items()
        ]
    return document


def _node(node: Node) -> dict[str, Any]:
    labels = {"block": node.block, "rack": node.rack, HOST: node.name}
    labels["kind"] = "fast" if node.is_fast else "slow"
    entry: dict[str, Any] = {
        "name": node.name,
        "gpus": node.gpus,
        "cpu": str(node.cores),
        "labels": labels,
    }
    if node.is_cordoned:
        entry["unschedulable"] = True
    return entry


def _queue(queue: Queue) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": queue.name,
        "gpu": {"quota": queue.quota, "weight": 0, "limit": queue.limit},
    }
    if queue.limit == UNLIMITED:
        del entry["gpu"]["limit"]
    if queue.parent:
        entry["parent"] = queue.parent
    if not queue.is_reclaimable:
        entry["reclaimable"] = False
    return entry


def _job(job: Job) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": job.name,
        "queue": job.queue,
        "priority": job.priority,
        "preemptible": job.is_preemptible,
        "minMember": job.least,
        "pods": [_pod(pod) for pod in job.pods],
        "recreate": job.returns,
    }
    if job.roles:
        entry["roles"] = dict(job.roles)
    if job.parts:
        entry["subGroups"] = [_part(part, job.parts[0].name) for part in job.parts]
    if job.level:
        entry["topology"] = {"name": "dc", "required": job.level}
        if job.is_exclusive:
            entry["topology"]["exclusive"] = True
    return entry


def _part(part: Part, first: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": part.name, "minMember": part.least}
    if part.level:
        entry["topology"] = {"name": "dc", "required": part.level}
    if part.later is not None:
        entry["after"] = [{"subGroup": first, "condition": "Ready"}]
        entry["template"] = {"gpus": part.later.gpus, "cpu": str(part.later.cores)}
    return entry


def _pod(pod: Pod) -> dict[str, Any]:
    entry: dict[str, Any] = {"gpus": pod.gpus}
    if pod.cores:
        entry["cpu"] = str(pod.cores)
    if pod.node:
        entry |= {"state": "Running", "node": pod.node}
    if pod.role:
        entry["role"] = pod.role
    if pod.part:
        entry["subGroup"] = pod.part
    if pod.app:
        entry["labels"] = {"app": pod.app}
    if pod.wants_fast:
        entry["nodeSelector"] = {"kind": "fast"}
    if pod.term is not None:
        term = {
            "labelSelector": {"matchLabels": {"app": pod.term.app}},
            "topologyKey": pod.term.key,
        }
        kind = "podAntiAffinity" if pod.term.is_anti else "podAffinity"
        entry["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if pod.claim:
        entry["claims"] = [pod.claim]
    return entry


def _devices(world: World) -> dict[str, Any]:
    api = "resource.k8s.io/v1"
    selector = {"cel": {"expression": f'device.driver == "{_DRIVER}"'}}
    return {
        "deviceClasses": [
            {
                "apiVersion": api,
                "kind": "DeviceClass",
                "metadata": {"name": _CLASS},
                "spec": {"selectors": [selector]},
            }
        ],
        "resourceSlices": [
            {
                "apiVersion": api,
                "kind": "ResourceSlice",
                "metadata": {"name": node.name},
                "spec": {
                    "driver": _DRIVER,
                    "nodeName": node.name,
                    "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"d{number}"} for number in range(node.devices)],
                },
            }
            for node in world.nodes
            if node.devices
        ],
    }


def _claim(name: str, node: str, taken: dict[str, int]) -> dict[str, Any]:
    """Return the claim `name`, allocated on `node` if its pods run there."""
    request = {"name": "r", "exactly": {"deviceClassName": _CLASS}}
    entry: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }
    if node:
        number = taken.get(node, 0)
        taken[node] = number + 1
        result = {"request": "r", "driver": _DRIVER, "pool": node, "device": f"d{number}"}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        entry["status"] = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [term]},
            }
        }
    return entry
