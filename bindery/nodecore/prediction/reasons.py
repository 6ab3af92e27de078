"""Why a node would refuse a pod, for people."""

from collections.abc import Iterator
from dataclasses import replace

from bindery.nodecore.cpu.static import SmtAlignmentError
from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.requests import PodRequest, Wanted
from bindery.nodecore.prediction.zones import Counts, NodeZones
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import POD_SCOPE, TOPOLOGY_AFFINITY_ERROR

_UNITS = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def refusal(node: NodeZones, request: PodRequest) -> str:
    """Return why `node` would refuse a pod, such as "no single NUMA zone has 4 free CPUs".

    Empty if it would admit the pod.
    """
    predicted = plain.predict(node, request)
    if predicted.admit:
        return ""
    wanted, before = _first_refused(node, request)
    amounts = _amounts(before, wanted)
    text = _text(amounts)
    if predicted.reason == SmtAlignmentError.reason:
        return f"{text} cannot be given as whole cores"
    if node.policy == policies.SINGLE_NUMA_NODE:
        return f"no single NUMA zone has {text}"
    shortage = _shortage(before, amounts)
    if shortage or predicted.reason != TOPOLOGY_AFFINITY_ERROR:
        return shortage or f"no NUMA zones that may be used together have {text}"
    return (
        f"{text} would be spread over more NUMA zones than the topology policy {node.policy} allows"
    )


def _first_refused(node: NodeZones, request: PodRequest) -> tuple[Wanted, NodeZones]:
    """Return what cannot be had, and the zones at that moment."""
    if node.scope == POD_SCOPE and not _admits(node, (request.whole,)):
        return request.whole, node
    for count in range(1, len(request.containers) + 1):
        if not _admits(node, request.containers[:count]):
            before = plain.predict(
                node, replace(request, containers=request.containers[: count - 1])
            )
            return request.containers[count - 1], before.after
    return request.whole, node


def _admits(node: NodeZones, containers: tuple[Wanted, ...]) -> bool:
    return plain.predict(node, PodRequest(containers, containers[-1])).admit


def _amounts(node: NodeZones, wanted: Wanted) -> dict[str, int]:
    """Return what is asked of the zones of this node."""
    found: dict[str, int] = {}
    if node.has_static_cpus and wanted.cpus:
        found[CPU] = wanted.cpus
    if node.has_static_memory:
        found |= wanted.memory
    found |= wanted.devices
    listed = {name for totals in node.totals for name, total in totals.items() if total}
    return {name: amount for name, amount in found.items() if name in listed}


def _shortage(node: NodeZones, amounts: Counts) -> str:
    """Return what all zones together have too little of."""
    for name, amount in amounts.items():
        free = sum(counts.get(name, 0) for counts in node.free)
        if free < amount:
            return f"its NUMA zones together have {_amount(name, free)} of {_amount(name, amount)}"
    return ""


def _text(amounts: Counts) -> str:
    texts = list(_texts(amounts))
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _texts(amounts: Counts) -> Iterator[str]:
    for place, (name, amount) in enumerate(amounts.items()):
        yield _amount(name, amount, "free " if place == 0 else "")


def _amount(name: str, amount: int, word: str = "") -> str:
    """Return an amount for people: "4 free CPUs", "8Gi of free memory", "2 free nvidia.com/gpu"."""
    if name == CPU:
        return f"{amount} {word}CPU{'' if amount == 1 else 's'}"
    if name.startswith(("memory", "hugepages-")):
        return f"{_bytes(amount)} of {word}{name}"
    return f"{amount} {word}{name}"


def _bytes(amount: int) -> str:
    for size, unit in _UNITS:
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)
