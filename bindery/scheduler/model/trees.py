"""Trees over nodes by their labels, as arrays, updated node by node.

A domain of a level is the set of nodes with equal labels there and at all levels above. A node
without one of these labels is in no domain of that level, nor of a deeper one.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NOWHERE = -1
"""The domain of a row that is in none."""


class Tree(Protocol):
    """A tree for planning. Domains have numbers, which change from tree to tree; names do not."""

    @property
    def levels(self) -> Sequence[str]:
        """The names of the levels, widest first."""

    def domains(self, level: int) -> NDArray[np.intp]:
        """Return node row -> domain at `level`, or NOWHERE. Do not write to it."""

    def names(self, level: int) -> Sequence[str]:
        """Return domain -> its name; "" for a number that is not in use."""

    def ranks(self, level: int) -> NDArray[np.intp]:
        """Return domain -> its position among all domains of `level`, in the order of the tree.

        Domains of one parent are adjacent.
        """


class _Level:
    """The domains of one level."""

    def __init__(self) -> None:
        self.of_path: dict[tuple[str, ...], int] = {}
        self.paths: list[tuple[str, ...]] = []
        self.counts: list[int] = []
        self.free: list[int] = []
        self.column: NDArray[np.intp] = np.full(0, NOWHERE, dtype=np.intp)
        self.ranks: NDArray[np.intp] | None = None

    def enter(self, path: tuple[str, ...]) -> int:
        """Add one node to the domain `path`, and return the domain."""
        domain = self.of_path.get(path)
        if domain is None:
            if self.free:
                domain = self.free.pop()
                self.paths[domain] = path
            else:
                domain = len(self.paths)
                self.paths.append(path)
                self.counts.append(0)
            self.of_path[path] = domain
            self.ranks = None
        self.counts[domain] += 1
        return domain

    def leave(self, domain: int) -> None:
        """Take one node out of `domain`; an empty domain is forgotten."""
        self.counts[domain] -= 1
        if not self.counts[domain]:
            del self.of_path[self.paths[domain]]
            self.paths[domain] = ()
            self.free.append(domain)
            self.ranks = None


class LabelTree:
    """A tree by node labels. `labels`: one for each level, widest first."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.levels: Sequence[str] = tuple(labels)
        self._levels = [_Level() for _ in labels]

    def put(self, row: int, labels: Mapping[str, str] | None) -> None:
        """Set the labels of the node at `row`; None for a row without a node."""
        path: tuple[str, ...] | None = () if labels is not None else None
        for key, level in zip(self.levels, self._levels, strict=True):
            if row >= len(level.column):
                more = np.full(max(64, row + 1 - len(level.column), len(level.column)), NOWHERE)
                level.column = np.concatenate([level.column, more])
            value = labels.get(key) if labels is not None else None
            path = (*path, value) if path is not None and value else None
            old = int(level.column[row])
            if old != NOWHERE and path == level.paths[old]:
                continue
            if old != NOWHERE:
                level.leave(old)
            level.column[row] = NOWHERE if path is None else level.enter(path)

    def domains(self, level: int) -> NDArray[np.intp]:
        """Return node row -> domain at `level`; rows beyond the last known node may be missing."""
        return self._levels[level].column

    def names(self, level: int) -> Sequence[str]:
        """Return domain -> its labels from the top down, with slashes between."""
        return ["/".join(path) for path in self._levels[level].paths]

    def ranks(self, level: int) -> NDArray[np.intp]:
        """Return domain -> its position in the order of the labels, from the top down."""
        found = self._levels[level]
        if found.ranks is None:
            order = sorted(
                range(len(found.paths)), key=lambda domain: _natural(found.paths[domain])
            )
            found.ranks = np.empty(len(order), dtype=np.intp)
            found.ranks[order] = np.arange(len(order))
        return found.ranks


def _natural(path: tuple[str, ...]) -> tuple[tuple[str, int, str], ...]:
    """Return a sort key for which rack-10 follows rack-9."""
    return tuple(natural(part) for part in path)


def natural(name: str) -> tuple[str, int, str]:
    """Return a sort key of `name` that compares a number at its end as a number."""
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits or 0), digits
