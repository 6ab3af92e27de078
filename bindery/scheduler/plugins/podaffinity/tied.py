"""The pods of a gang that require each other in one domain, and the domains with room for them.

The first of them may go anywhere, and the others must follow it. So the search tries several
domains for all of them together.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.domains import EVERYWHERE, Domain, Freeable
from bindery.scheduler.model.fits import pods_per_node
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.label_domains import NO_DOMAIN
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.plugins.podaffinity.ledger import AffinityLedger
from bindery.scheduler.plugins.view import SessionView

_MOST_TRIED = 32
"""How many choices of domains are tried for a gang in a cycle."""


@dataclass(eq=False)
class _Tied:
    """Pods that must be in one domain of each of `keys`."""

    shapes: set[Shape]
    keys: set[str] = field(default_factory=set)


def domains(
    session: SessionView, tasks: Sequence[Task], freeable: Freeable | None
) -> Iterator[Domain] | None:
    """Return the domains to try for `tasks`, pods of one gang; None if they require none.

    All nodes come first: the first pod takes the best node, which usually serves all. Then the
    domains whose sum of room is enough, the smallest first. `freeable`: see `DomainAsk`.
    """
    ledger = session.ledger(AffinityLedger)
    groups = _groups(ledger, dict.fromkeys(task.shape for task in tasks))
    if not groups:
        return None
    return _tried(session, groups, Counter(task.shape for task in tasks), freeable)


def _groups(ledger: AffinityLedger, shapes: dict[Shape, None]) -> list[_Tied]:
    """Return the pods that require each other; pods with peers in the cluster follow these."""
    groups: list[_Tied] = []
    for shape in shapes:
        terms = shape.rules.affinity
        if not terms or ledger.has_peers(shape):
            continue
        peers = {other for other in shapes if ledger.are_peers(shape, other)}
        if peers:
            tied = _Tied({shape, *peers}, {term.topology_key for term in terms})
            for other in [each for each in groups if not tied.shapes.isdisjoint(each.shapes)]:
                tied.shapes |= other.shapes
                tied.keys |= other.keys
                groups.remove(other)
            groups.append(tied)
    return groups


def _tried(
    session: SessionView,
    groups: Sequence[_Tied],
    counts: Counter[Shape],
    freeable: Freeable | None,
) -> Iterator[Domain]:
    yield EVERYWHERE
    choices = [_Room(session, group, counts, freeable).masks() for group in groups]
    for chosen in islice(product(*choices), _MOST_TRIED):
        of_shapes = {
            shape: mask
            for group, (_, mask) in zip(groups, chosen, strict=True)
            for shape in group.shapes
        }
        name = " and ".join(dict.fromkeys(name for name, _ in chosen))
        yield Domain(None, name=name, of_shapes=of_shapes)


class _Room:
    """The room for tied pods in each domain; a domain is one value of each label key."""

    def __init__(
        self,
        session: SessionView,
        group: _Tied,
        counts: Counter[Shape],
        freeable: Freeable | None,
    ) -> None:
        ledger, nodes = session.ledger(AffinityLedger), session.state.nodes
        self._session = session
        self._keys = sorted(group.keys)
        of_row = np.array([ledger.domains(key).of_row for key in self._keys])
        self._inside: BoolColumn = (of_row != NO_DOMAIN).all(axis=0)
        values, at = np.unique(of_row[:, self._inside], axis=1, return_inverse=True)
        self._at: NDArray[np.intp] = np.reshape(at, -1)
        self._count = values.shape[1]
        later = nodes.idle[:] + nodes.releasing[:] - nodes.pipelined[:]
        now = np.minimum(nodes.idle[:], later)
        if freeable is not None:
            later = later + freeable.room
        self._fits_now = np.ones(self._count, dtype=np.bool_)
        self._fits_later = self._fits_now.copy()
        self._sum = np.zeros(self._count, dtype=np.int64)
        for shape in group.shapes:
            rules = ledger.rules(shape)
            allowed = session.passing(shape)
            if rules is not None:
                allowed = allowed & rules.open_for_peers()
            need = counts[shape]
            self._fits_now &= self._summed(shape, now, allowed, need) >= need
            found = self._summed(shape, later, allowed, need)
            self._fits_later &= found >= need
            self._sum += found

    def masks(self) -> Iterator[tuple[str, BoolColumn]]:
        """Yield the domains with enough room, with their names: those with idle room first."""
        first = np.full(self._count, len(self._inside), dtype=np.intp)
        position = np.zeros(len(self._inside), dtype=np.intp)
        position[self._session.order] = np.arange(len(self._session.order))
        np.minimum.at(first, self._at, position[self._inside])
        for domain in np.lexsort((first, self._sum, ~self._fits_now)):
            if self._fits_later[domain]:
                mask: BoolColumn = self._inside.copy()
                mask[self._inside] = self._at == domain
                yield self._name(int(np.argmax(mask))), mask

    def _summed(
        self, shape: Shape, room: IntColumns, allowed: BoolColumn, most: int
    ) -> NDArray[np.int64]:
        fits = pods_per_node(self._session.state.nodes, shape.request, room, most) * allowed
        return np.bincount(self._at, fits[self._inside], self._count).astype(np.int64)

    def _name(self, row: int) -> str:
        node = self._session.state.nodes.nodes[row]
        labels = node.metadata.labels if node is not None else {}
        return ", ".join(f"{key} {labels.get(key, '')}" for key in self._keys)
