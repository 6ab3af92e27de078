"""Inputs and answers of the kubelet, as data: `tables/*.json`.

Each table is a list of cases; a case has what a function of the kubelet is given and what it
returns. Pods are manifests, sets of CPUs are lists such as "0-3,8", NUMA masks are lists of nodes.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bindery.nodecore.cpu.topology import CpuInfo, CpuTopology
from bindery.nodecore.masks import mask_of
from bindery.nodecore.pods import Pod
from bindery.nodecore.topology.hints import Hint

Json = dict[str, Any]

_DIRECTORY = Path(__file__).parent / "tables"


@cache
def tables(name: str) -> Json:
    """Return the tables of one part of the kubelet, by the name of the table."""
    found: Json = json.loads((_DIRECTORY / f"{name}.json").read_text())
    return found


def cases(name: str, *names: str) -> pytest.MarkDecorator:
    """Run a test with each case of some tables of the part `name`."""
    found = [
        pytest.param(case, id=f"{table}-{number}")
        for table in names
        for number, case in enumerate(tables(name)[table])
    ]
    return pytest.mark.parametrize("case", found)


@cache
def cpu_topology(name: str) -> CpuTopology:
    """Return a machine of the tables of the CPU manager."""
    return topology_of(tables("cpu_machines")[name])


def topology_of(machine: Json) -> CpuTopology:
    """Return a machine whose places are CPU, NUMA node, socket, core and cache."""
    return CpuTopology(
        details={
            cpu: CpuInfo(numa=numa, socket=socket, core=core, uncore=uncore)
            for cpu, numa, socket, core, uncore in machine["places"]
        },
        num_cpus=machine["cpus"],
        num_cores=machine["cores"],
        num_sockets=machine["sockets"],
        num_numa=machine["numa"],
        num_uncore=machine["caches"],
    )


def pod(manifest: Json) -> Pod:
    return Pod.from_manifest(manifest)


def hint(found: Json) -> Hint:
    nodes = found["nodes"]
    return Hint(None if nodes is None else mask_of(nodes), found["preferred"])


def hints(found: Iterable[Json]) -> set[Hint]:
    return {hint(one) for one in found}


def mask(nodes: Iterable[int] | None) -> int | None:
    return None if nodes is None else mask_of(nodes)


def by_container(
    found: Mapping[str, Mapping[str, Any]], read: Callable[[Any], Any]
) -> dict[str, dict[str, Any]]:
    """Return what containers hold, with each value read."""
    return {uid: {name: read(of) for name, of in inner.items()} for uid, inner in found.items()}
