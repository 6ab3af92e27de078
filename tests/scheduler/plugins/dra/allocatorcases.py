"""Reads the tables of the allocator: Kubernetes objects, and the devices of a pod's claims.

A file has the common `objects` of its cases, and `cases`: a name, further objects, and the
expected result on `node`. The pod uses the claims without an allocation, in their order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bindery.kube.objects.claims import RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import KubeObject, Node
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.plugins.dra.candidates import AllocationError
from bindery.scheduler.plugins.dra.claim_cache import ClaimCache
from bindery.scheduler.plugins.dra.claims import ClaimError
from bindery.scheduler.plugins.dra.node_fit import NodeFit
from bindery.scheduler.plugins.dra.result import allocation
from bindery.scheduler.plugins.dra.usage import UsageView

FOLDER = Path(__file__).parent / "cases"
_KINDS = {r.kind: r for r in (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS, NODES)}


@dataclass(frozen=True)
class Case:
    name: str
    objects: tuple[KubeObject, ...]
    node: str
    expect: Mapping[str, Any]


def cases() -> list[Case]:
    return [case for path in sorted(FOLDER.glob("*.yaml")) for case in _read(path)]


def _read(path: Path) -> Iterator[Case]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for case in content["cases"]:
        items = [*content["objects"], *case.get("objects", ())]
        yield Case(
            f"{path.stem}: {case['name']}",
            tuple(_object(item) for item in items),
            case.get("node", "worker"),
            case["expect"],
        )


def _object(item: Mapping[str, Any]) -> KubeObject:
    meta = {"namespace": "default", "uid": item["metadata"]["name"], **item["metadata"]}
    return msgspec.convert({**item, "metadata": meta}, _KINDS[item["kind"]].type)


def answer(case: Case) -> dict[str, Any]:
    """Return the answer of the allocator, in the form of `expect`."""
    state, cache = PlanState(), ClaimCache()
    for item in case.objects:
        if isinstance(item, Node):
            state.nodes.put(item)
        else:
            cache.observe(Change(EventType.ADDED, item, None))
    wanted = [c for c in cache.claims.values() if c.status.allocation is None]
    node_fit = NodeFit(cache)
    node_fit.freshen(state.nodes)
    try:
        signature = tuple(cache.prepared(claim.spec.devices) for claim in wanted)
        found = node_fit.find(
            state.nodes, state.nodes.rows[case.node], signature, UsageView((cache.held,))
        )
    except ClaimError as error:
        return {"claimError": str(error)}
    except AllocationError as error:
        return {"error": str(error)}
    if found is None:
        return {"devices": None}
    made = [
        allocation(prepared, claim.metadata.uid, choices, case.node)
        for prepared, claim, choices in zip(signature, wanted, found, strict=True)
    ]
    return _described(wanted, [msgspec.to_builtins(each) for each in made])


def _described(claims: list[ResourceClaim], made: list[dict[str, Any]]) -> dict[str, Any]:
    names = [claim.metadata.name for claim in claims]
    results = [each.get("devices", {}).get("results", []) for each in made]
    return {
        "devices": {
            name: [f"{r['request']}={r['device']}" for r in rows]
            for name, rows in zip(names, results, strict=True)
        },
        "allocations": dict(zip(names, made, strict=True)),
    }
