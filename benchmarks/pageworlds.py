"""The cluster that the dashboard is measured with, as lists and watches of an API server carry it.

Used by `dashboard`. Everything follows from the numbers of nodes and pods. Nodes have eight GPUs
and stand in racks of 40; gangs of ten single-GPU pods run on 39 of 40 GPUs, and the others wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bindery.api.names import (
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
    RACK_LABEL,
    SCHEDULER_NAME,
    ZONE_LABEL,
)
from bindery.kube.objects.resources import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Change, Malformed, Store

Wire = dict[str, Any]

GANG_SIZE: Final = 10
TEAMS: Final = 50
"""Namespaces, each with a queue of its own below one of the departments."""
DEPARTMENTS: Final = 5
_GPUS: Final = 8
_RACK_SIZE: Final = 40
_RACKS_OF_ZONE: Final = 25
_CREATED: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class PageWorld:
    """A cluster by its size."""

    nodes: int
    pods: int

    @property
    def running(self) -> int:
        """The number of gangs that run; the free GPUs have room for a few more."""
        return min(self.nodes * _GPUS * 39 // (40 * GANG_SIZE), self.pods * 4 // (5 * GANG_SIZE))

    @property
    def gangs(self) -> int:
        """The number of gangs."""
        return self.pods // GANG_SIZE

    def lists(self) -> Iterator[tuple[Resource[Any], Wire]]:
        """Yield every object with its kind."""
        for number in range(DEPARTMENTS):
            yield QUEUES, self._queue(department(number), "", TEAMS // DEPARTMENTS)
        for number in range(TEAMS):
            name = team(number)
            yield QUEUES, self._queue(name, department(number % DEPARTMENTS), 1)
            metadata = {**_metadata(name), "labels": {QUEUE_LABEL: name}}
            yield NAMESPACES, {"metadata": metadata}
        for number in range(self.nodes):
            yield NODES, _node(number)
        for number in range(self.gangs):
            yield POD_GROUPS, self._group(number)
        for number in range(self.gangs * GANG_SIZE):
            yield PODS, self.pod(number)

    def pod(self, number: int, version: int = 1) -> Wire:
        """Return a pod; those of the gangs that run are spread over the nodes."""
        gang = number // GANG_SIZE
        node = node_name(number // _GPUS) if gang < self.running else ""
        metadata = {
            **_metadata(f"{gang_name(gang)}-{number % GANG_SIZE}", team(gang % TEAMS), version),
            "annotations": {POD_GROUP_ANNOTATION: gang_name(gang)},
            "labels": {"app": gang_name(gang), "index": str(number % GANG_SIZE)},
            "ownerReferences": [_owner(gang)],
        }
        requests = {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "1"}
        container = {
            "name": "train",
            "image": "example.com/train:1.0",
            "resources": {"requests": requests, "limits": {GPU_RESOURCE: "1"}},
        }
        spec: Wire = {"schedulerName": SCHEDULER_NAME, "containers": [container], "priority": 0}
        if node:
            spec["nodeName"] = node
        return {"metadata": metadata, "spec": spec, "status": _pod_status(bool(node))}

    def _queue(self, name: str, parent: str, teams: int) -> Wire:
        quota = self.nodes * _GPUS * teams // TEAMS
        resources = {"gpu": {"quota": quota, "overQuotaWeight": 1.0}}
        spec = {"resources": resources, **({"parent": parent} if parent else {})}
        return {"metadata": _metadata(name), "spec": spec}

    def _group(self, number: int) -> Wire:
        """Return a PodGroup with the status that the scheduler writes."""
        runs, queue = number < self.running, team(number % TEAMS)
        why = {
            "type": "Scheduled",
            "status": str(runs),
            "reason": "Scheduled" if runs else "InsufficientResources",
            "message": "" if runs else "10 pods do not fit: no node has the GPUs of one more pod",
            "lastTransitionTime": _CREATED,
        }
        return {
            "metadata": _metadata(gang_name(number), queue),
            "spec": {"minMember": GANG_SIZE, "queue": queue},
            "status": {
                "state": "Running" if runs else "Waiting",
                "since": _CREATED,
                "assignedQueue": queue,
                "conditions": [why],
            },
        }


class Mirrors:
    """The objects of a world as a process has them that lists and watches."""

    def __init__(self, world: PageWorld) -> None:
        """List everything, in JSON as an API server would send it."""
        self._world = world
        self._stores: dict[str, Store[Any]] = {}
        self._decoder = LenientDecoder(PODS)
        self._version = 1
        for resource, wire in world.lists():
            store = self._stores.setdefault(resource.plural, Store())
            store.see(resource.decode(msgspec.json.encode(wire)))

    def objects(self) -> Iterator[KubeObject]:
        """Yield all objects."""
        for store in self._stores.values():
            yield from store.objects.values()

    def names(self) -> list[str]:
        """Return the names of the namespaces."""
        return [name for _, name in self._stores[NAMESPACES.plural].objects]

    def change_a_pod(self) -> list[Change[Any]]:
        """Take the next line of a watch, in which a running pod has a new version."""
        self._version += 1
        number = self._version % max(1, self._world.running * GANG_SIZE)
        wire = {"type": "MODIFIED", "object": self._world.pod(number, self._version)}
        _, found = self._decoder.event(msgspec.json.encode(wire))
        if isinstance(found, Malformed):
            raise TypeError(found.message)
        return self._stores[PODS.plural].see(found)


def team(number: int) -> str:
    """Return the name of a namespace and its queue."""
    return f"team-{number:02}"


def department(number: int) -> str:
    """Return the name of a queue above those of teams."""
    return f"department-{number}"


def gang_name(number: int) -> str:
    """Return the name of a gang."""
    return f"gang-{number:05}"


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:05}"


def _node(number: int) -> Wire:
    rack = number // _RACK_SIZE
    labels = {
        "kubernetes.io/hostname": node_name(number),
        ZONE_LABEL: f"zone-{rack // _RACKS_OF_ZONE}",
        RACK_LABEL: f"rack-{rack:03}",
        GPU_MODEL_LABEL: "NVIDIA-H100-80GB-HBM3",
    }
    room = {"cpu": "128", "memory": "2Ti", "pods": "110", GPU_RESOURCE: str(_GPUS)}
    conditions = [
        _condition(kind, "False")
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    ]
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [*conditions, _condition("Ready", "True")],
    }
    return {"metadata": {**_metadata(node_name(number)), "labels": labels}, "status": status}


def _pod_status(runs: bool) -> Wire:
    if not runs:
        return {"phase": "Pending", "conditions": [_condition("PodScheduled", "False")]}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": _CREATED,
        "conditions": [_condition(kind, "True") for kind in kinds],
        "containerStatuses": [{"name": "train", "state": {"running": {"startedAt": _CREATED}}}],
    }


def _condition(kind: str, status: str) -> Wire:
    return {"type": kind, "status": status, "lastTransitionTime": _CREATED}


def _owner(gang: int) -> Wire:
    name = gang_name(gang)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": f"uid-job-{name}",
        "controller": True,
    }


def _metadata(name: str, namespace: str = "", version: int = 1) -> Wire:
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": _CREATED,
    }
