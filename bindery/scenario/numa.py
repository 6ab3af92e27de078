"""Nodes of a scenario with NUMA zones: they refuse pods as a kubelet does, and report their zones.

Created by `creation`; the cluster calls it when pods start and go. The plain predictor of nodecore
decides which zones a pod gets, from the free amounts. The reports are NodeResourceTopologies with
the annotation of Bindery's node agent, written after each step, or some steps `late`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from bindery.api import numaplacement, quantity
from bindery.api.names import GPU_RESOURCE, NUMA_DETAIL_ANNOTATION
from bindery.api.numadetail import NumaDetail
from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects.nodetopologies import (
    NUMA_ZONE,
    POLICY_ATTRIBUTE,
    SCOPE_ATTRIBUTE,
    ZONE_PREFIX,
    Attribute,
    NodeResourceTopology,
    Zone,
    ZoneResource,
)
from bindery.kube.objects.watched import KubeObject, Meta, Pod
from bindery.nodecore.cpusets import format_cpus, parse_cpus
from bindery.nodecore.masks import mask_of
from bindery.nodecore.pods import CPU, MEMORY
from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.requests import PodRequest, Wanted
from bindery.nodecore.prediction.zones import NodeZones, is_memory
from bindery.scenario.nodes import NodeNuma, NumaZone, ScenarioNode
from bindery.scheduler.plugins.numa.asks import Asks

_NOTHING: Final = PodRequest((), Wanted())

Amounts = Mapping[int, Mapping[str, int]]
"""Zone -> resource -> whole CPUs, bytes or devices."""


@dataclass(frozen=True)
class HeldZones:
    """The amounts that a pod holds in the zones of its node."""

    amounts: Amounts

    @property
    def zones(self) -> tuple[int, ...]:
        """The zones, ascending."""
        return tuple(sorted(self.amounts))

    def placement(self) -> NumaPlacement:
        """Return the record of the pod."""
        held = {str(zone): dict(amounts) for zone, amounts in self.amounts.items()}
        return NumaPlacement(zones=list(self.zones), held=held)


@dataclass
class _Node:
    """A node with zones."""

    entry: NodeNuma
    empty: NodeZones
    """The zones without pods, less the key `used` of the entry."""
    held: dict[str, HeldZones] = field(default_factory=dict)
    """Pod UID -> the amounts that it holds, in the order in which the pods started."""
    waiting: deque[NodeResourceTopology] = field(default_factory=deque)
    """Reports that are not published yet."""
    published: NodeResourceTopology | None = None


class NumaNodes:
    """The zones of all nodes that have some. `put` stores the reports."""

    def __init__(self, put: Callable[[KubeObject], None]) -> None:
        self._put = put
        self._asks = Asks()
        self._nodes: dict[str, _Node] = {}
        self._places: dict[str, str] = {}
        """Pod UID -> node."""

    def put_node(self, name: str, entry: ScenarioNode) -> None:
        """Take the zones of a node; pods that run there keep their amounts."""
        if entry.numa is None or not entry.numa.zones:
            return
        known = self._nodes.get(name)
        self._nodes[name] = node = _Node(entry.numa, _empty(entry.numa))
        if known is not None:
            node.held, node.published = known.held, known.published

    def refusal(self, pod: Pod, node_name: str) -> str:
        """Return the reason for which a node refuses a pod, "" if it admits it."""
        node = self._nodes.get(node_name)
        if node is None or pod.metadata.uid in self._places:
            return ""
        return plain.predict(_current(node), self._request(pod)).reason

    def start(self, pod: Pod, node_name: str, zones: tuple[int, ...] = ()) -> HeldZones | None:
        """Give a pod its part of the zones; return it, None if the node has no zones.

        `zones`: where it is, for a pod that begins there; empty: where the node puts it.
        """
        node = self._nodes.get(node_name)
        if node is None or pod.metadata.uid in self._places:
            return None
        before = _current(node)
        after = plain.take(before, self._request(pod), mask_of(zones))
        held = HeldZones(
            {
                zone: taken
                for zone, (had, has) in enumerate(zip(before.free, after.free, strict=True))
                if (taken := {name: had[name] - has[name] for name in had if had[name] > has[name]})
            }
        )
        node.held[pod.metadata.uid] = held
        self._places[pod.metadata.uid] = node_name
        return held

    def stop(self, uid: str) -> None:
        """Take back the amounts of a pod."""
        name = self._places.pop(uid, None)
        if name is not None and name in self._nodes:
            self._nodes[name].held.pop(uid, None)

    def zones_of(self, uid: str) -> tuple[int, ...] | None:
        """Return the zones that a pod holds; None if its node has none, or it has none."""
        name = self._places.get(uid)
        held = self._nodes[name].held.get(uid) if name in self._nodes else None
        return None if held is None else held.zones

    def publish(self) -> None:
        """Write the changed reports that are due."""
        for name, node in self._nodes.items():
            node.waiting.append(_report(name, node))
            if len(node.waiting) <= node.entry.late and node.published is not None:
                continue
            found = node.waiting.popleft()
            if found != node.published:
                self._put(found)
                node.published = found

    def _request(self, pod: Pod) -> PodRequest:
        ask = self._asks.of_pod(pod)
        return _NOTHING if ask is None else ask.request


def predicted_zones(data: Mapping[str, object]) -> tuple[int, ...]:
    """Return the zones in the data for the binder."""
    found = numaplacement.from_data(data)
    return () if found is None else tuple(found.zones)


def _empty(entry: NodeNuma) -> NodeZones:
    totals = [_totals(zone) for zone in entry.zones]
    names = {name for each in totals for name in each}
    totals = [{name: each.get(name, 0) for name in sorted(names)} for each in totals]
    used = [_amounts(zone.used) for zone in entry.zones]
    free = [
        {name: max(0, total - gone.get(name, 0)) for name, total in each.items()}
        for each, gone in zip(totals, used, strict=True)
    ]
    return NodeZones(
        free=tuple(free),
        totals=tuple(totals),
        policy=entry.policy,
        scope=entry.scope,
        has_static_cpus=entry.cpu_policy == "static",
        has_static_memory=_has_static_memory(entry),
    )


def _has_static_memory(entry: NodeNuma) -> bool:
    if entry.memory_policy is not None:
        return entry.memory_policy == "Static"
    return any(quantity.parse(zone.memory, MEMORY) for zone in entry.zones)


def _totals(zone: NumaZone) -> dict[str, int]:
    """Return the total amounts of a zone."""
    found = {CPU: len(parse_cpus(zone.cpus)), **_amounts(zone.resources)}
    if zone.memory != "0":
        found |= _amounts({MEMORY: zone.memory})
    if zone.gpus:
        found[GPU_RESOURCE] = len(zone.gpus)
    return found


def _amounts(texts: Mapping[str, str]) -> dict[str, int]:
    return {
        name: quantity.parse(text, name) // quantity.scale(name) for name, text in texts.items()
    }


def _current(node: _Node) -> NodeZones:
    """Return the zones with the amounts that are free now."""
    free = [dict(counts) for counts in node.empty.free]
    groups = [0] * len(free)
    for held in node.held.values():
        of_memory = [zone for zone, amounts in held.amounts.items() if any(map(is_memory, amounts))]
        for zone, amounts in held.amounts.items():
            if zone >= len(free):  # the node had more zones when the pod started
                continue
            for name, amount in amounts.items():
                free[zone][name] = max(0, free[zone].get(name, 0) - amount)
            if zone in of_memory:
                groups[zone] = mask_of(of_memory)
    guessed = node.empty.memory_groups
    merged = tuple(group or guess for group, guess in zip(groups, guessed, strict=True))
    return replace(node.empty, free=tuple(free), groups=merged)


def _report(name: str, node: _Node) -> NodeResourceTopology:
    current = _current(node)
    zones = []
    for number, (free, totals) in enumerate(zip(current.free, current.totals, strict=True)):
        resources = [
            ZoneResource(
                name=resource,
                capacity=str(total),
                allocatable=str(total),
                available=str(free[resource]),
            )
            for resource, total in totals.items()
        ]
        zones.append(Zone(name=f"{ZONE_PREFIX}{number}", type=NUMA_ZONE, resources=resources))
    return NodeResourceTopology(
        metadata=Meta(name=name, annotations={NUMA_DETAIL_ANNOTATION: _detail(node).encode()}),
        zones=zones,
        attributes=[
            Attribute(name=POLICY_ATTRIBUTE, value=node.entry.policy),
            Attribute(name=SCOPE_ATTRIBUTE, value=node.entry.scope),
        ],
    )


def _detail(node: _Node) -> NumaDetail:
    current = _current(node)
    cpus = [sorted(parse_cpus(zone.cpus)) for zone in node.entry.zones]
    free = [cpu for each, has in zip(cpus, current.free, strict=True)
            for cpu in each[len(each) - has[CPU]:]]  # fmt: skip
    return NumaDetail(
        pods=sorted(node.held),
        cpu_manager_policy=node.entry.cpu_policy,
        memory_manager_policy="Static" if current.has_static_memory else "None",
        cpus={f"{ZONE_PREFIX}{zone}": format_cpus(each) for zone, each in enumerate(cpus)},
        free=format_cpus(free),
    )
