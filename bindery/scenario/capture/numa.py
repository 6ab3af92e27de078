"""NUMA zones of live nodes, and which of them pods hold, as a scenario's keys.

Used by `cluster`; pure. The report of a node and the records on its pods become zones, what pods
hold of them, and what is used without a pod of the scenario.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bindery.api import numadetail, numaplacement
from bindery.api.names import GPU_RESOURCE, NUMA_DETAIL_ANNOTATION, NUMA_ZONES_ANNOTATION
from bindery.kube.objects.nodetopologies import ZONE_PREFIX, NodeResourceTopology
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.nodecore.cpusets import format_cpus
from bindery.nodecore.pods import CPU, MEMORY
from bindery.nodecore.prediction.requests import PodRequest
from bindery.scenario.capture.nodes import Entry
from bindery.scheduler.plugins.numa.asks import Asks
from bindery.scheduler.plugins.numa.reports import ReportError, ZoneReport, read

_OWN_KEYS: Final = frozenset({CPU, MEMORY, GPU_RESOURCE})

Amounts = dict[str, int]
"""Resource -> whole CPUs, bytes or devices."""


@dataclass
class Captured:
    """What a snapshot shows of NUMA zones."""

    nodes: dict[str, Entry] = field(default_factory=dict)
    """Node name -> its key `numa`."""
    pods: dict[str, list[int]] = field(default_factory=dict)
    """Pod UID -> its key `numa`."""
    problems: list[str] = field(default_factory=list)
    """What the scenario leaves out."""


def capture_numa(
    nodes: Iterable[Node], pods: Iterable[Pod], further: Iterable[KubeObject]
) -> Captured:
    """Return the zones of `nodes` and of the `pods` that the scenario shows.

    `further`: objects of a snapshot, with its NodeResourceTopologies.
    """
    found = Captured()
    stored = {it.metadata.name: it for it in further if isinstance(it, NodeResourceTopology)}
    if not stored:
        return found
    asks = Asks()
    on_node: dict[str, list[Pod]] = {}
    for pod in pods:
        on_node.setdefault(pod.spec.node_name, []).append(pod)
        found.problems.extend(_summed(pod, asks))
    for node in nodes:
        name = node.metadata.name
        try:
            item = stored.get(name)
            report = read(item, node.status.capacity or {}) if item is not None else None
        except ReportError as error:
            found.problems.append(f"the NUMA zones of node {name}: {error}")
            continue
        if item is not None and report is not None:
            _capture_node(found, node, item, report, on_node.get(name, []), asks)
    return found


def _capture_node(
    found: Captured,
    node: Node,
    item: NodeResourceTopology,
    report: ZoneReport,
    pods: list[Pod],
    asks: Asks,
) -> None:
    used = [
        {name: total - free.get(name, 0) for name, total in totals.items()}
        for totals, free in zip(report.zones.totals, report.zones.free, strict=True)
    ]
    for pod in pods:
        uid, ask = pod.metadata.uid, asks.of_pod(pod)
        if ask is None:
            continue
        held = _recorded(pod, report) or _guessed(ask.request, used, report)
        found.pods[uid] = sorted(held)
        if report.pods is not None and uid not in report.pods:
            continue  # the report does not count it yet
        for zone, amounts in held.items():
            for name, amount in amounts.items():
                used[zone][name] = max(0, used[zone].get(name, 0) - amount)
    zones = report.zones
    entry: Entry = {
        "policy": zones.policy,
        "scope": zones.scope,
        "cpuPolicy": "static" if zones.has_static_cpus else "none",
        "memoryPolicy": "Static" if zones.has_static_memory else "None",
        "zones": list(_zone_entries(node, item, report, used)),
    }
    found.nodes[node.metadata.name] = entry
    if zones.threads_per_core or zones.prefer_closest:
        found.problems.append(
            f"the options of the CPU manager and topology manager of node {node.metadata.name}"
        )


def _recorded(pod: Pod, report: ZoneReport) -> dict[int, Amounts]:
    """Return what the record of the binder says that a pod holds, by place of the zone."""
    text = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
    record = numaplacement.from_record(text, pod.metadata.uid)
    if record is None:
        return {}
    return {
        report.ids.index(number): dict(record.held.get(str(number), {}))
        for number in record.zones
        if number in report.ids
    }


def _guessed(request: PodRequest, used: list[Amounts], report: ZoneReport) -> dict[int, Amounts]:
    """Return the first zone on which enough is in use for the pod, {} if there is none."""
    whole, zones = request.whole, report.zones
    wanted: Amounts = dict(whole.devices)
    if zones.has_static_cpus and whole.cpus:
        wanted[CPU] = whole.cpus
    if zones.has_static_memory:
        wanted |= whole.memory
    known = {name for totals in zones.totals for name, total in totals.items() if total}
    wanted = {name: amount for name, amount in wanted.items() if name in known and amount}
    for place, amounts in enumerate(used):
        if wanted and all(amounts.get(name, 0) >= amount for name, amount in wanted.items()):
            return {place: wanted}
    return {}


def _zone_entries(
    node: Node, item: NodeResourceTopology, report: ZoneReport, used: list[Amounts]
) -> Iterator[Entry]:
    cpus = _cpus(item, report)
    gpus = [totals.get(GPU_RESOURCE, 0) for totals in report.zones.totals]
    has_all_gpus = str(sum(gpus)) == (node.status.allocatable or {}).get(GPU_RESOURCE)
    for place, totals in enumerate(report.zones.totals):
        entry: Entry = {"cpus": cpus[place]}
        if MEMORY in totals:
            entry["memory"] = str(totals[MEMORY])
        if has_all_gpus:
            first = sum(gpus[:place])
            entry["gpus"] = list(range(first, first + gpus[place]))
        own = _OWN_KEYS if has_all_gpus else _OWN_KEYS - {GPU_RESOURCE}
        entry["resources"] = {
            name: str(amount) for name, amount in totals.items() if name not in own and amount
        }
        entry["used"] = {name: str(amount) for name, amount in used[place].items() if amount}
        yield {key: value for key, value in entry.items() if value}


def _cpus(item: NodeResourceTopology, report: ZoneReport) -> list[str]:
    """Return the CPUs of each zone; numbered one zone after the other if the report has none."""
    text = item.metadata.annotations.get(NUMA_DETAIL_ANNOTATION)
    listed = numadetail.decode(text).cpus if text is not None else {}
    names = [f"{ZONE_PREFIX}{number}" for number in report.ids]
    if all(listed.get(name) for name in names):
        return [listed[name] for name in names]
    counts = [totals.get(CPU, 0) for totals in report.zones.totals]
    firsts = [sum(counts[:place]) for place in range(len(counts))]
    pairs = zip(firsts, counts, strict=True)
    return [format_cpus(frozenset(range(first, first + count))) for first, count in pairs]


def _summed(pod: Pod, asks: Asks) -> Iterator[str]:
    """Yield that the containers of a pod are written as one, if zones see the difference."""
    if len(pod.spec.containers) > 1 and asks.of_pod(pod) is not None:
        yield f"{pod.metadata.name}: NUMA zones are given to each of its containers"
