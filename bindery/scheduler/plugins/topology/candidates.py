"""The candidate domains for pods, best first, by sums of room.

A domain whose sum of room is too small for the pods is never yielded, so it is never searched.
Everything up to the choice is computed on arrays; masks are made one by one, when asked for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.domains import Domain, DomainAsk
from bindery.scheduler.model.fits import pods_per_node
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.trees import NOWHERE
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.topology.levels import Levels, padded, ranked
from bindery.scheduler.plugins.view import SessionView

_STEP = 1e8
"""Above all scores of plugins."""


def bonus(
    columns: Sequence[NDArray[np.intp]], fits: NDArray[np.int64], need: int, beside: Rows
) -> NDArray[np.float64] | None:
    """Return node row -> bonus, so that `need` pods fill the best parts first; None if none count.

    `columns`: node row -> part, for each deeper level of the tree, widest first. `fits`: node row
    -> pods that fit there. `beside`: rows of pods that the others should be near.
    """
    places: list[NDArray[np.intp]] = []
    for column in columns:
        inside = (column != NOWHERE) & (fits > 0)
        parts = np.unique(column[inside])
        if len(parts) < 2 or len(parts) == np.count_nonzero(inside):
            continue  # one part has it all, or each node is a part: other scores decide
        sums = np.bincount(column[inside], fits[inside]).astype(np.int64)
        near = np.bincount(column[beside][column[beside] != NOWHERE], minlength=len(sums))
        order = _in_order(parts, sums, near, need)
        # NOWHERE is -1: the last entry, behind all parts.
        place = np.full(len(sums) + 1, len(order), dtype=np.intp)
        place[order] = np.arange(len(order))
        places.append(place[np.where(column < len(sums), column, NOWHERE)])
    if not places:
        return None
    # The widest level counts most; equal places share a number.
    _, numbers = np.unique(np.stack(places), axis=1, return_inverse=True)
    numbers = numbers.reshape(-1)
    return np.asarray((int(numbers.max()) - numbers) * _STEP)


def _in_order(
    parts: NDArray[np.intp], sums: NDArray[np.int64], near: NDArray[np.intp], need: int
) -> NDArray[np.intp]:
    """Return `parts` in the order in which `need` pods fill the fewest of them.

    First those with pods that the others should be near; then the largest, until one of the others
    takes all that is left: the smallest of these.
    """
    order = parts[np.lexsort((parts, -sums[parts], -near[parts]))]
    left, sizes = need, sums[order]
    for position, size in enumerate(sizes.tolist()):
        if not near[order[position]] and size >= left:
            # Sizes fall from here on; the first of the smallest that suffice.
            smallest = sizes[position:][sizes[position:] >= left][-1]
            at = position + int((sizes[position:] == smallest).argmax())
            return np.concatenate(
                [order[:position], order[at : at + 1], order[position:at], order[at + 1 :]]
            )
        left -= size
        if left <= 0:
            break
    return order


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """One level: how many pods fit into each of its domains."""

    domain: NDArray[np.intp]
    """Node row -> domain."""
    now: NDArray[np.int64]
    """Domain -> pods that fit into idle room, over all shapes."""
    later: NDArray[np.int64]
    """Domain -> pods that fit after all releases, and evictions if they are possible."""
    has_now: BoolColumn
    """Domain -> whether all pods may fit into idle room."""
    has_later: BoolColumn
    """Domain -> whether all pods may fit after releases and evictions."""


class Candidates:
    """The domains that may have room for the pods of `ask`."""

    def __init__(
        self,
        session: SessionView,
        ask: DomainAsk,
        levels: Levels,
        *,
        closed: BoolColumn | None = None,
        later: BoolColumn | None = None,
        going: Sequence[tuple[Uid, int]] = (),
    ) -> None:
        """Compute the room.

        `closed`: rows that the pods may not use; `later`: rows that they may use after releases;
        None for none. `going`: pods that must go before the domain with the row can be used.
        """
        self._session = session
        self._ask = ask
        self._levels = levels
        self._closed = closed
        self._going = going
        nodes = session.state.nodes
        self._rows = len(nodes.nodes)
        room = nodes.idle[:] + nodes.releasing[:] - nodes.pipelined[:]
        now = np.minimum(nodes.idle[:], room)
        if later is not None:
            now = now * ~later
        if ask.freeable is not None:
            room = room + ask.freeable.room
        if ask.taken is not None:
            now, room = now - ask.taken, room - ask.taken
        self._now: IntColumns = now
        self._later: IntColumns = room
        self._need: Counter[Shape] = Counter(task.shape for task in ask.tasks)
        self._open = {shape: self._allowed(shape) for shape in self._need}
        self.fits: dict[Shape, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for shape, count in self._need.items():
            allowed = self._open[shape]
            self.fits[shape] = (
                pods_per_node(nodes, shape.request, now, count) * allowed,
                pods_per_node(nodes, shape.request, room, count) * allowed,
            )

    def __iter__(self) -> Iterator[Domain]:
        """Yield the candidates: the lowest rank first, and in a rank the best first."""
        allowed = self._levels.allowed
        if self._ask.is_widest_only:
            allowed = () if self._levels.may_leave else allowed[-1:]
        for rank, level in enumerate(allowed):
            yield from self._of_level(level, rank)
        if self._levels.may_leave:
            everywhere = self._ask.within
            if self._closed is not None:
                everywhere = ~self._closed if everywhere is None else everywhere & ~self._closed
            order = self._bonus(everywhere, -1)
            yield Domain(everywhere, len(self._levels.allowed), "", order)

    def most(self, level: int) -> tuple[int, int, str]:
        """Return the number of domains at `level`, the most pods that fit into one, and its name.

        Counts the pods that fit after releases.
        """
        sums = self._sums(level)
        names = self._levels.tree.names(level)
        used = [domain for domain, name in enumerate(names) if name]
        if not used:
            return 0, 0, ""
        best = max(used, key=lambda domain: (sums.later[domain], names[domain]))
        return len(used), int(sums.later[best]), names[best]

    def _allowed(self, shape: Shape) -> BoolColumn:
        mask = self._session.passing(shape)
        if self._ask.within is not None:
            mask = mask & self._ask.within
        return mask if self._closed is None else mask & ~self._closed

    def _sums(self, level: int) -> Sums:
        domain = padded(self._levels.tree, level, self._rows)
        inside = domain != NOWHERE
        count = len(self._levels.tree.names(level))
        at = domain[inside]
        now, later = np.zeros(count, np.int64), np.zeros(count, np.int64)
        has_now, has_later = np.ones(count, np.bool_), np.ones(count, np.bool_)
        for shape, need in self._need.items():
            fit_now, fit_later = self.fits[shape]
            sum_now = np.bincount(at, fit_now[inside], count).astype(np.int64)
            sum_later = np.bincount(at, fit_later[inside], count).astype(np.int64)
            has_now &= sum_now >= need
            has_later &= sum_later >= need
            now += sum_now
            later += sum_later
        if len(self._need) > 1:  # each shape alone may fit, and all together not
            has_now &= self._has_total(self._now, at, inside, count)
            has_later &= self._has_total(self._later, at, inside, count)
        return Sums(domain, now, later, has_now, has_later)

    def _has_total(
        self, room: IntColumns, at: NDArray[np.intp], inside: BoolColumn, count: int
    ) -> BoolColumn:
        """Return domain -> whether the sum of `room` is enough for all pods together."""
        nodes, has = self._session.state.nodes, np.ones(count, np.bool_)
        any_open = np.logical_or.reduce(list(self._open.values()))
        asked = total(nodes.least_on_nodes(task.shape.request) for task in self._ask.tasks)
        for index, amount in asked.items():
            free = np.maximum(room[index], 0) * any_open
            has &= np.bincount(at, free[inside], count) >= amount
        return has

    def _of_level(self, level: int, rank: int) -> Iterator[Domain]:
        sums = self._sums(level)
        beside = self._beside(sums)
        fitting = sums.has_now | sums.has_later
        # Running pods keep the others in their domain.
        if beside.any() and not self._levels.may_leave:
            fitting &= beside > 0
        found = np.flatnonzero(fitting)
        if not len(found):
            return
        for at in self._in_order(found, sums, beside, level):
            domain = int(found[at])
            mask = sums.domain == domain
            if self._ask.within is not None:
                mask &= self._ask.within
            if self._closed is not None:
                mask &= ~self._closed
            name = f"{self._levels.name(level)} {self._levels.tree.names(level)[domain]}"
            going = frozenset(uid for uid, row in self._going if mask[row])
            yield Domain(
                mask,
                rank,
                name,
                self._bonus(mask, level),
                going=going,
            )

    def _beside(self, sums: Sums) -> NDArray[np.int64]:
        """Return domain -> number of other pods of the group."""
        rows = self._ask.beside
        domains = sums.domain[rows] if len(rows) else np.zeros(0, np.intp)
        return np.bincount(domains[domains != NOWHERE], minlength=len(sums.now))

    def _in_order(
        self, found: NDArray[np.intp], sums: Sums, beside: NDArray[np.int64], level: int
    ) -> NDArray[np.intp]:
        """Return positions in `found`, best first."""
        keys: list[NDArray[np.float64] | NDArray[np.int64] | NDArray[np.intp] | BoolColumn]
        keys = [-beside[found], ~sums.has_now[found]]
        if self._ask.freeable is not None:
            # Those with the most room need the fewest victims.
            keys = [-beside[found], -sums.now[found], self._last_victim(sums)[found]]
        elif self._ask.constraint.tree.is_of_hyper_nodes:
            keys.append(-self._fullness(sums)[found])
        else:
            keys += [sums.now[found], sums.later[found], self._around(sums, level)[found]]
        keys.append(self._levels.tree.ranks(level)[found])
        return np.lexsort(tuple(reversed(keys)))

    def _around(self, sums: Sums, level: int) -> NDArray[np.int64]:
        """Return domain -> the pods that fit into the domain around it.

        Of equal domains, the one in the fullest surroundings leaves the others whole.
        """
        if not level:
            return np.zeros(len(sums.now), np.int64)
        above = padded(self._levels.tree, level - 1, self._rows)
        both = (sums.domain != NOWHERE) & (above != NOWHERE)
        free = sum(now for now, _ in self.fits.values()) * both
        of_above = np.bincount(above[both], np.asarray(free)[both])
        parent = np.full(len(sums.now), NOWHERE, np.intp)
        parent[sums.domain[both]] = above[both]
        return np.where(parent == NOWHERE, 0, of_above[parent]).astype(np.int64)

    def _last_victim(self, sums: Sums) -> NDArray[np.intp]:
        """Return domain -> about the place of its last victim in the order of eviction.

        Nodes are taken in the order of their first victims, until all pods fit.
        """
        count, freeable = len(sums.now), self._ask.freeable
        first = freeable.first_victim if freeable is not None else None
        last = np.zeros(count, np.intp)
        if first is None:
            return last
        now = np.asarray(sum(fit for fit, _ in self.fits.values()))
        later = np.asarray(sum(fit for _, fit in self.fits.values()))
        # Idle room comes before all victims.
        domain = np.concatenate([sums.domain, sums.domain])
        place = np.concatenate([np.full(self._rows, -1), first[: self._rows]])
        fits = np.concatenate([now, np.maximum(later - now, 0)])
        order = np.lexsort((place, domain))
        order = order[domain[order] != NOWHERE]
        at, reached = domain[order], np.cumsum(fits[order])
        starts = np.searchsorted(at, np.arange(count))
        before = np.concatenate([[0], reached])[starts]
        enough = np.flatnonzero(reached - before[at] >= len(self._ask.tasks))
        found, positions = np.unique(at[enough], return_index=True)
        last[:] = np.iinfo(np.intp).max
        last[found] = place[order[enough[positions]]]
        return last

    def _fullness(self, sums: Sums) -> NDArray[np.float64]:
        """Return domain -> mean share of the requested resources in use after the placement.

        The fullest HyperNode is the best (Volcano's network-topology-aware).
        """
        nodes, inside = self._session.state.nodes, sums.domain != NOWHERE
        at, count = sums.domain[inside], len(sums.now)
        asked = total(nodes.least_on_nodes(task.shape.request) for task in self._ask.tasks)
        pods = nodes.axis.index("pods")
        shares = np.zeros(count)
        counted = {index: amount for index, amount in asked.items() if index != pods}
        for index, amount in (counted or asked).items():
            offered = np.bincount(at, nodes.allocatable[index][inside], count)
            idle = np.bincount(at, nodes.idle[index][inside], count)
            shares += (offered - idle + amount) / np.maximum(offered, 1)
        return shares / max(1, len(counted or asked))

    def _bonus(self, mask: BoolColumn | None, level: int) -> NDArray[np.float64] | None:
        deeper: Sequence[int] = range(level + 1, len(self._levels.tree.levels))
        fits = self._fits_of_all()
        need = len(self._ask.tasks)
        columns = [ranked(self._levels.tree, each, self._rows) for each in deeper]
        return bonus(columns, fits if mask is None else fits * mask, need, self._ask.beside)

    def _fits_of_all(self) -> NDArray[np.int64]:
        """Return node row -> pods that fit: now, or after releases where there is less room."""
        now = sum(fit for fit, _ in self.fits.values())
        later = sum(fit for _, fit in self.fits.values())
        need = len(self._ask.tasks)
        return np.asarray(now if int(np.sum(now)) >= need else later, dtype=np.int64)
