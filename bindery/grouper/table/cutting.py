"""Cuts the parts of a gang into smaller ones: segments by a label, and pods in order.

A row names the roles of a kind. How many segments, or pods in order, there are follows from the
size and the minimum of one object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bindery.grouper.table.parts import PlannedSubGroup
from bindery.kube.objects.podgroups import Dependency, Segments, TopologyConstraint

MOST_IN_ORDER: Final = 128
"""How many pods in order can be stages: the PodGroup has a template for each."""


def into_segments(
    parts: Sequence[PlannedSubGroup], segments: Segments, label: str, topology: str | None
) -> list[PlannedSubGroup]:
    """Return `parts` with a group for each segment, which has a domain of its own.

    Pods are numbered in the order of the leaves. If one pod is left over, it belongs to the first
    segment, as LeaderWorkerSet counts its leader. `label`: has the number of the segment at the
    pods of leaves that are cut. `topology`: the name of the Topology.
    """
    leaves = [part for part in parts if not part.is_inner]
    count = sum(leaf.count or 0 for leaf in leaves)
    first = segments.size + ((count - 1) % segments.size == 0)
    domain = TopologyConstraint(
        name=topology, required=segments.required, preferred=segments.preferred
    )
    pieces: dict[int, list[PlannedSubGroup]] = {}
    position = 0
    for leaf in leaves:
        end, least = position + (leaf.count or 0), leaf.least
        while position < end:
            number = 0 if position < first else 1 + (position - first) // segments.size
            stop = min(end, first + number * segments.size)
            piece = _piece(leaf, number, stop - position, min(least, stop - position), label)
            pieces.setdefault(number, []).append(piece)
            least -= piece.least
            position = stop
    found = [part for part in parts if part.is_inner]
    for number, members in pieces.items():
        name = f"segment-{number}"
        if len(members) == 1:
            found.append(replace(members[0], name=name, constraint=domain))
            continue
        found.append(
            PlannedSubGroup(name, name, members[0].parent, is_inner=True, constraint=domain)
        )
        found.extend(replace(member, parent=name) for member in members)
    return found


def _piece(
    leaf: PlannedSubGroup, number: int, count: int, least: int, label: str
) -> PlannedSubGroup:
    if count == leaf.count:
        return leaf
    labels = {**leaf.labels, label: str(number)}
    name = f"{leaf.name}-{number}" if leaf.name else ""
    return replace(leaf, name=name, count=count, least=least, labels=labels)


def into_order(
    whole: PlannedSubGroup, minimum: int, start: int, label: str
) -> list[PlannedSubGroup]:
    """Return a part for each of the first `minimum` pods of `whole`, after the one before it.

    `label`: has the number of a pod, from `start` on. Further pods are in a part that needs none.
    """
    found: list[PlannedSubGroup] = []
    after: tuple[Dependency, ...] = ()
    for number in range(start, start + minimum):
        labels: Mapping[str, str] = {**whole.labels, label: str(number)}
        name = f"pod-{number}"
        found.append(
            replace(whole, name=name, role=name, count=1, least=1, labels=labels, after=after)
        )
        after = (Dependency(sub_group=name, condition="Ready"),)
    return [*found, replace(whole, name="others", role="others", count=None, least=0)]
