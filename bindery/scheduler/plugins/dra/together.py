"""The pods of a gang that share a claim without devices, and the nodes with room for all of them.

Most drivers offer devices to one node: the first pod of the claim chooses the node, and the others
must follow it. So the search tries several nodes for all of them together.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.domains import EVERYWHERE, Domain, Freeable
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.plugins.dra.claims import ClaimError
from bindery.scheduler.plugins.dra.ledger import ClaimLedger
from bindery.scheduler.plugins.dra.references import ClaimKey, ClaimReferenceError
from bindery.scheduler.plugins.view import SessionView

_MOST_TRIED = 32
"""How many choices of nodes are tried for a gang in a cycle."""

Failures = Callable[[Task], Iterable[NodeFailure]]
"""Returns the nodes without devices for the claims of a pod."""


@dataclass(eq=False)
class _Sharing:
    """Pods that share claims, which have no devices yet."""

    keys: set[ClaimKey]
    tasks: list[Task]

    @property
    def shapes(self) -> set[Shape]:
        return {task.shape for task in self.tasks}


def domains(
    session: SessionView, tasks: Sequence[Task], failures: Failures, freeable: Freeable | None
) -> Iterator[Domain] | None:
    """Return the domains to try for `tasks`, pods of one gang; None if they share no claim.

    All nodes come first: the first pod takes the best node, which usually serves all. Then the
    single nodes with room for all pods of a claim; nodes with idle room first. `freeable`: see
    `DomainAsk`.
    """
    groups = _groups(session.ledger(ClaimLedger), tasks)
    counts = Counter(task.shape for task in tasks)
    # A domain ties pods by shape, so pods of a shape must all be of one group.
    tied = [
        each
        for each in groups
        if Counter(task.shape for task in each.tasks) == {s: counts[s] for s in each.shapes}
    ]
    return _tried(session, tied, failures, freeable) if tied else None


def _groups(ledger: ClaimLedger, tasks: Sequence[Task]) -> list[_Sharing]:
    users: defaultdict[ClaimKey, list[Task]] = defaultdict(list)
    for task in tasks:
        if Need.RESOURCE_CLAIMS in task.shape.needs:
            try:
                needs = ledger.needs(task)
            except (ClaimReferenceError, ClaimError):  # the pod is refused
                continue
            for need in needs:
                if ledger.needs_devices(need):
                    users[need.key].append(task)
    groups: list[_Sharing] = []
    for key, found in users.items():
        if len(found) < 2:
            continue
        group, uids = _Sharing({key}, found), {task.uid for task in found}
        for other in [g for g in groups if not uids.isdisjoint(task.uid for task in g.tasks)]:
            merged = {task.uid: task for task in (*other.tasks, *group.tasks)}
            group = _Sharing(group.keys | other.keys, list(merged.values()))
            groups.remove(other)
        groups.append(group)
    return groups


def _tried(
    session: SessionView,
    groups: Sequence[_Sharing],
    failures: Failures,
    freeable: Freeable | None,
) -> Iterator[Domain]:
    yield EVERYWHERE
    choices = [list(_masks(session, group, failures, freeable)) for group in groups]
    for chosen in islice(product(*choices), _MOST_TRIED):
        of_shapes = {
            shape: mask
            for group, (_, mask) in zip(groups, chosen, strict=True)
            for shape in group.shapes
        }
        name = " and ".join(dict.fromkeys(name for name, _ in chosen))
        yield Domain(None, name=f"node {name}", of_shapes=of_shapes)


def _masks(
    session: SessionView, group: _Sharing, failures: Failures, freeable: Freeable | None
) -> Iterator[tuple[str, BoolColumn]]:
    """Yield the name and the mask of each node with room for all pods of `group`."""
    nodes = session.state.nodes
    usable = np.ones(len(nodes.nodes), dtype=np.bool_)
    for task in {task.shape: task for task in group.tasks}.values():
        usable &= session.passing(task.shape)
        for failure in failures(task):
            if failure.is_lasting or freeable is None:
                usable &= ~failure.nodes
    later = nodes.idle[:] + nodes.releasing[:] - nodes.pipelined[:]
    now = np.minimum(nodes.idle[:], later)
    if freeable is not None:
        later = later + freeable.room
    request = total(task.shape.request.on_nodes for task in group.tasks)
    rows = session.order[usable[session.order]]
    fits_now, fits_later = (_fitting(session, request, room, usable) for room in (now, later))
    for is_idle in (True, False):
        for row in rows[fits_later[rows] & (fits_now[rows] == is_idle)].tolist():
            mask = np.zeros(len(usable), dtype=np.bool_)
            mask[row] = True
            yield nodes.name(row), mask


def _fitting(
    session: SessionView, request: Mapping[int, int], room: IntColumns, usable: BoolColumn
) -> BoolColumn:
    """Return the rows of `usable` with `room` for `request`, as a mask."""
    fits, nodes = usable.copy(), session.state.nodes
    rows = np.arange(len(usable))
    for index, amount in request.items():
        # A node may serve a resource without counting it; see `NodesView.serves`.
        fits &= (room[index] >= amount) | nodes.serves(index, rows)
    return fits
