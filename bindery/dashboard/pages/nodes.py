"""The map of nodes by rack, and the page of one node.

The states of the map are a table, `STATES`: the first state that holds is the state of a node, and
the others that hold are its marks.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from bindery.dashboard.facts import NodeFact, NodeShare, Picture, PodOnNode
from bindery.dashboard.listing import Heading, Listing, TableQuery, listing
from bindery.scheduler.model.jobs import JobKey

_NOTHING: Final = NodeShare(0.0, 0.0, 0.0, 0.0)
_PARTS: Final = re.compile(r"([^0-9]*)([0-9]{0,18})")
TILES: Final = 500
"""Nodes on one page of the map."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A state of a node on the map."""

    word: str
    """In the address, in JSON and as the class of its colour."""
    title: str
    sign: str
    """What stands on the map beside the colour."""
    holds: Callable[[NodeFact], bool]


def main_resource(node: NodeFact) -> str:
    """Return the resource that the map shows of `node`: its GPUs, else its cores."""
    return "gpu" if _share(node, "gpu").capacity else "cpu"


def _share(node: NodeFact, resource: str) -> NodeShare:
    return node.resources.get(resource, _NOTHING)


def _main(node: NodeFact) -> NodeShare:
    return _share(node, main_resource(node))


def _has_room(node: NodeFact) -> bool:
    return _main(node).used < _main(node).capacity


STATES: Final = (
    NodeState("sick", "Sick", "!", lambda node: node.is_sick),
    NodeState("cordoned", "Cordoned", "x", lambda node: node.is_cordoned),
    NodeState("freed", "Being freed", "v", lambda node: _main(node).releasing > 0),
    NodeState(
        "reserved",
        "Reserved or kept",
        "R",
        lambda node: bool(node.kept_for) and _main(node).kept > 0,
    ),
    NodeState("idle", "GPUs unused", "z", lambda node: any(pod.is_idle for pod in node.pods)),
    NodeState("shared", "Shared GPUs", "%", lambda node: any(pod.is_shared for pod in node.pods)),
    NodeState("full", "Full", "#", lambda node: _main(node).capacity > 0 and not _has_room(node)),
    NodeState("free", "Free", "o", lambda node: not _main(node).used),
    NodeState("fragmented", "Partly used", "+", lambda _: True),
)
"""In the order of their importance; the last one always holds."""

HEADINGS: Final = (
    Heading("name", "Node"),
    Heading("rack", "Rack"),
    Heading("zone", "Zone"),
    Heading("state", "State"),
    Heading("model", "GPU model"),
    Heading("gpus_used", "GPUs used", is_number=True),
    Heading("gpus", "GPUs", is_number=True),
    Heading("gpus_kept", "GPUs kept", is_number=True),
    Heading("gpus_releasing", "GPUs being freed", is_number=True),
    Heading("cpu_used", "Cores used", is_number=True),
    Heading("cpu", "Cores", is_number=True),
    Heading("pods", "Pods", is_number=True),
    Heading("problem", "Problem"),
)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node."""

    name: str
    rack: str
    zone: str
    pool: str
    state: str
    """The word of its state."""
    marks: tuple[str, ...]
    """The words of the other states that hold."""
    model: str
    resource: str
    """The resource of the map."""
    used: float
    capacity: float
    gpus: float
    gpus_used: float
    gpus_kept: float
    gpus_releasing: float
    cpu: float
    cpu_used: float
    pods: int
    problem: str


@dataclass(frozen=True, slots=True)
class RackOfNodes:
    """A rack with its nodes on this page of the map."""

    name: str
    gpus: float
    gpus_used: float
    nodes: tuple[str, ...]
    """The names of the nodes; their rows are in the table."""


@dataclass(frozen=True)
class NodesPage:
    """The map."""

    shows_nodes: bool
    """Whether the person may list nodes."""
    counts: dict[str, int]
    """Word of a state -> number of nodes in it."""
    racks: tuple[RackOfNodes, ...]
    all_racks: tuple[str, ...]
    listing: Listing[NodeRow]

    @cached_property
    def row_by_name(self) -> dict[str, NodeRow]:
        """The rows on this page of the table."""
        return {row.name: row for row in self.listing.rows}


@dataclass(frozen=True)
class NodePage:
    """One node."""

    node: NodeRow
    labels: dict[str, str]
    resources: dict[str, NodeShare]
    kept_for: tuple[JobKey, ...]
    """The gangs that room is kept for, as far as they may be named."""
    kept_for_others: int
    listing: Listing[PodOnNode]


POD_HEADINGS: Final = (
    Heading("name", "Pod"),
    Heading("gang", "Gang"),
    Heading("state", "State"),
    Heading("gpus", "GPUs", is_number=True),
    Heading("count", "Pods", is_number=True),
)


def nodes_page(picture: Picture, asked: TableQuery) -> NodesPage:
    """Return the map; `rack` and `state` in the query select nodes."""
    rows = picture.once(node_rows)
    rack, state = asked.filter("rack"), asked.filter("state")
    found = [
        row
        for row in rows
        if (not rack or row.rack == rack)
        and (not state or row.state == state or state in row.marks)
    ]
    table = listing("Nodes", HEADINGS, found, asked)
    by_rack: defaultdict[tuple[str, str], list[NodeRow]] = defaultdict(list)
    for row in table.rows:
        by_rack[row.zone, row.rack].append(row)
    return NodesPage(
        shows_nodes=picture.shows_nodes,
        counts=dict(Counter(row.state for row in rows)),
        racks=tuple(_rack(zone, name, nodes) for (zone, name), nodes in by_rack.items()),
        all_racks=tuple(sorted({row.rack for row in rows if row.rack})),
        listing=table,
    )


def node_page(picture: Picture, name: str, asked: TableQuery) -> NodePage | None:
    """Return the page of the node `name`; None if there is none that may be shown."""
    node = picture.node_by_name.get(name)
    if node is None:
        return None
    return NodePage(
        node=node_row(node),
        labels=dict(node.labels),
        resources=dict(node.resources),
        kept_for=tuple(key for key in node.kept_for if key is not None),
        kept_for_others=node.kept_for.count(None),
        listing=listing("Pods on the node", POD_HEADINGS, node.pods, asked),
    )


def node_rows(picture: Picture) -> tuple[NodeRow, ...]:
    """Return the rows of all nodes, by zone, rack and name."""
    rows = map(node_row, picture.nodes)
    return tuple(sorted(rows, key=lambda row: (row.zone, row.rack, _natural(row.name))))


def node_row(node: NodeFact) -> NodeRow:
    """Return the row of `node`."""
    words = [state.word for state in STATES if state.holds(node)]
    gpu, cpu, main = _share(node, "gpu"), _share(node, "cpu"), _main(node)
    return NodeRow(
        name=node.name,
        rack=node.rack,
        zone=node.zone,
        pool=node.pool,
        state=words[0],
        marks=tuple(words[1:-1]),
        model=node.model,
        resource=main_resource(node),
        used=main.used,
        capacity=main.capacity,
        gpus=gpu.capacity,
        gpus_used=gpu.used,
        gpus_kept=gpu.kept,
        gpus_releasing=gpu.releasing,
        cpu=cpu.capacity,
        cpu_used=cpu.used,
        pods=sum(pod.count for pod in node.pods),
        problem=node.problem,
    )


def _natural(name: str) -> list[tuple[str, int]]:
    """Return the key of `name` for an order in which node2 comes before node10."""
    return [(text, int(number or 0)) for text, number in _PARTS.findall(name)]


def _rack(zone: str, name: str, nodes: list[NodeRow]) -> RackOfNodes:
    title = " / ".join(part for part in (zone, name) if part)
    gpus, used = sum(node.gpus for node in nodes), sum(node.gpus_used for node in nodes)
    return RackOfNodes(title, gpus, used, tuple(node.name for node in nodes))
