"""Nodes with NUMA zones, their reports, and pods that require alignment."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bindery.api import podfingerprint
from bindery.api.names import NUMA_DETAIL_ANNOTATION, NUMA_ZONES_ANNOTATION
from bindery.api.numadetail import NumaDetail
from bindery.api.numaplacement import NumaPlacement
from bindery.api.times import timestamp
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.nodetopologies import (
    POLICY_ATTRIBUTE,
    SCOPE_ATTRIBUTE,
    Attribute,
    Cost,
    NodeResourceTopology,
    Zone,
    ZoneResource,
)
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import GPU, NOW, Clock, delete, engine_with, node, pod

SINGLE = "single-numa-node"
RESTRICTED = "restricted"
BEST_EFFORT = "best-effort"
GIB = 1024**3

Free = Mapping[str, Sequence[int]]
"""Resource -> the amount in each zone: whole CPUs, GiB, devices."""


def numa_node(name: str, zones: int = 2, cpu: int = 4, gpu: int = 0, **more: Any) -> kube.Node:
    """Return a node whose zones each have `cpu` CPUs, `gpu` GPUs and 8 GiB of memory."""
    made = node(name, cpu=zones * cpu, gpu=zones * gpu, memory=f"{zones * 8}Gi", **more)
    capacity = made.status.allocatable
    status = msgspec.structs.replace(made.status, capacity=capacity)
    return msgspec.structs.replace(made, status=status)


def amount(resource: str, value: int) -> str:
    return f"{value}Gi" if resource == "memory" else str(value)


def report(
    name: str,
    capacity: Mapping[str, int] | None = None,
    *,
    zones: int = 2,
    free: Free | None = None,
    policy: str = SINGLE,
    scope: str = "container",
    version: str = "1",
    pods: Sequence[str] | None = None,
    signed: Sequence[kube.Pod] | None = None,
    costs: Sequence[Sequence[int]] = (),
    detail: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> NodeResourceTopology:
    """Return a report. `capacity`: that of one zone. `free`: what is available, else all of it.

    `pods`: the UIDs in the list of Bindery's agent; `signed`: the pods of the fingerprint.
    """
    of_zone = {"cpu": 4, "memory": 8} if capacity is None else capacity
    written = dict(annotations or {})
    if pods is not None or detail is not None:
        given = {"cpu_manager_policy": "static", "memory_manager_policy": "Static"}
        written[NUMA_DETAIL_ANNOTATION] = NumaDetail(
            pods=sorted(pods or ()), **{**given, **(detail or {})}
        ).encode()
    if signed is not None:
        named = [(each.metadata.namespace, each.metadata.name) for each in signed]
        written[podfingerprint.ANNOTATION] = podfingerprint.sign(named)
    return NodeResourceTopology(
        metadata=kube.Meta(name=name, uid=f"nrt-{name}", annotations=written),
        attributes=[
            Attribute(name=POLICY_ATTRIBUTE, value=policy),
            Attribute(name=SCOPE_ATTRIBUTE, value=scope),
        ],
        zones=[
            Zone(
                name=f"node-{number}",
                type="Node",
                costs=[
                    Cost(name=f"node-{other}", value=value)
                    for other, value in enumerate(costs[number] if costs else ())
                ],
                resources=[
                    ZoneResource(
                        name=resource,
                        capacity=amount(resource, total),
                        allocatable=amount(resource, total),
                        available=amount(
                            resource, free[resource][number] if free and resource in free else total
                        ),
                    )
                    for resource, total in of_zone.items()
                ],
            )
            for number in range(zones)
        ],
    )


def container(
    cpu: str | int = 0, gpu: int = 0, memory: str = "1Gi", *, guaranteed: bool = True, **more: Any
) -> podspec.Container:
    amounts = {"cpu": str(cpu), "memory": memory, **({GPU: str(gpu)} if gpu else {})}
    limits = amounts if guaranteed else {GPU: str(gpu)} if gpu else {}
    resources = podspec.ResourceRequirements(requests=amounts, limits=limits)
    return podspec.Container(resources=resources, **more)


def aligned_pod(name: str, cpu: str | int = 2, gpu: int = 0, **more: Any) -> kube.Pod:
    """Return a Guaranteed pod, unless `guaranteed` is False."""
    keys = ("memory", "guaranteed")
    of_container = {key: more.pop(key) for key in keys if key in more}
    return pod(name, containers=[container(cpu, gpu, **of_container)], **more)


def bound(
    item: kube.Pod, on: str, placement: NumaPlacement | None = None, phase: str = "Running"
) -> kube.Pod:
    """Return `item` on a node, with the record of the binder if `placement` is given."""
    annotations = dict(item.metadata.annotations)
    if placement is not None:
        annotations[NUMA_ZONES_ANNOTATION] = placement.record(item.metadata.uid)
    return msgspec.structs.replace(
        item,
        metadata=msgspec.structs.replace(item.metadata, annotations=annotations),
        spec=msgspec.structs.replace(item.spec, node_name=on),
        status=msgspec.structs.replace(item.status, phase=phase, start_time=timestamp(NOW - 60)),
    )


def on_zone(zone: int, cpu: int, memory_gib: int = 1, gpu: int = 0) -> NumaPlacement:
    held = {"cpu": cpu, "memory": memory_gib * GIB, **({GPU: gpu} if gpu else {})}
    return NumaPlacement(zones=[zone], held={str(zone): held})


def refused(item: kube.Pod, on: str, reason: str = "TopologyAffinityError") -> kube.Pod:
    """Return `item`, bound and then refused by its node."""
    there = bound(item, on, on_zone(0, 2), phase="Failed")
    message = "Pod was rejected: Resources cannot be allocated with Topology locality"
    status = msgspec.structs.replace(there.status, reason=reason, message=message, start_time=None)
    return msgspec.structs.replace(there, status=status)


class NumaWorld:
    """An engine, and what the API server has. Changes have their previous state."""

    def __init__(self, *items: kube.KubeObject, clock: Clock | None = None, **fields: Any) -> None:
        self.clock = clock or Clock()
        self.engine: Engine = engine_with(clock=self.clock, **fields)
        self._known: dict[tuple[type, str], kube.KubeObject] = {}
        self.put(*items)

    def put(self, *items: kube.KubeObject) -> None:
        for item in items:
            key = type(item), item.metadata.name
            old = self._known.get(key)
            kind = EventType.ADDED if old is None else EventType.MODIFIED
            self._known[key] = item
            self.engine.cluster.apply(Change(kind, item, old))

    def remove(self, *items: kube.KubeObject) -> None:
        for item in items:
            delete(self.engine.cluster, self._known.pop((type(item), item.metadata.name)))

    def drafts(self) -> list[StatementDraft]:
        return list(self.engine.cycle())

    def zones(self) -> dict[str, tuple[str, list[int] | None]]:
        """Run one cycle; return pod name -> node and predicted zones."""
        return {
            each.pod_name: (
                each.selected_node,
                each.plugin_data["numa"]["zones"] if "numa" in each.plugin_data else None,
            )
            for draft in self.drafts()
            for each in draft.spec.pods
        }
