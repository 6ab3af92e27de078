"""Allocation on many nodes at once; `account.Account` does the same on one node."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.arrays import MAX_ZONES, Floats
from bindery.nodecore.prediction.columnhints import Memory
from bindery.nodecore.prediction.columnmerge import Decisions
from bindery.nodecore.prediction.columns import Bools, Columns, Masks, blocks
from bindery.nodecore.prediction.requests import Wanted

_ZONE_BITS: Final = (MAX_ZONES - 1).bit_length()


def allocate(
    columns: Columns, wanted: Wanted, decided: Decisions, alive: Bools, *, is_last: bool
) -> Masks:
    """Take a container's resources on all nodes; return the masks of their zones.

    `alive`: nodes that have not refused the pod; nodes that refuse now are set to False. `is_last`:
    whether no container follows, so that the rest need not be computed.
    """
    used = np.zeros(columns.size, np.uint8)
    for name, count in wanted.devices.items():
        asked = alive & columns.placed[name]
        if asked.any():
            given = _devices(columns, name, count, decided.masks, asked, alive)
            _hand_out(columns, name, given, used, wanted.is_init, is_last)
    if wanted.cpus:
        asked = alive & columns.placed[CPU]
        if asked.any():
            given = _cpus(columns, wanted.cpus, decided.masks, asked, alive)
            _hand_out(columns, CPU, given, used, wanted.is_init, is_last)
    asked = alive & columns.has_static_memory
    if wanted.memory and asked.any():
        masks = _groups(columns, wanted.memory, decided, asked, alive)
        used |= masks
        if not is_last:
            _charge(columns, wanted, masks)
    return used


def _devices(
    columns: Columns, name: str, count: int, masks: Masks, asked: Bools, alive: Bools
) -> Floats:
    """Return how many devices each zone gives: reusable ones, then those on the chosen zones."""
    left = np.where(asked, float(count), 0.0)
    given = np.zeros((columns.zones, columns.size))
    reusable = columns.reusable.get(name)
    if reusable is not None:
        _fill(reusable, None, left, given)
    inside = [columns.bits(masks, zone) for zone in range(columns.zones)]
    _fill(columns.free[name], inside, left, given)
    if left.any():
        _fill(columns.free[name], [~one for one in inside], left, given)
    alive &= left <= 0
    return given


def _fill(available: Floats, inside: list[Bools] | None, left: Floats, given: Floats) -> None:
    """Give what is `left` to give from the zones in their order; changes `left` and `given`."""
    for zone, amounts in enumerate(available):
        taken = np.minimum(amounts, left)
        if inside is not None:
            taken = taken * inside[zone]
        np.maximum(taken, 0.0, out=taken)
        given[zone] += taken
        left -= taken


def _cpus(columns: Columns, count: int, masks: Masks, asked: Bools, alive: Bools) -> Floats:
    """Return how many CPUs each zone gives: on the chosen zones first, then anywhere."""
    usable = columns.usable(CPU)
    fits = usable.sum(axis=0) >= count
    threads = columns.threads_per_core
    if threads.any():
        whole = columns.free[CPU].sum(axis=0) - columns.split.sum(axis=0)
        fits &= (threads == 0) | ((count % np.maximum(threads, 1) == 0) & (count <= whole))
    alive &= fits | ~asked
    given = np.zeros((columns.zones, columns.size))
    others = asked & fits
    for zone in range(columns.zones):
        on_one = others & (masks == 1 << zone) & (usable[zone] >= count)
        given[zone, on_one] = count
        others &= ~on_one
    nodes = np.flatnonzero(others)
    if len(nodes):
        given[:, nodes] = _spread(columns, usable[:, nodes], masks[nodes], count, nodes)
    return given


def _spread(
    columns: Columns, usable: Floats, masks: Masks, count: int, nodes: NDArray[np.intp]
) -> Floats:
    sizes, split = columns.totals[CPU][:, nodes], columns.split[:, nodes]
    inside = np.array([columns.bits(masks, zone) for zone in range(columns.zones)])
    aligned = usable * inside
    given = packed(aligned, sizes, split, np.minimum(count, aligned.sum(axis=0)))
    lacking = count - given.sum(axis=0)
    more = np.flatnonzero(lacking)
    if len(more):
        left = (usable - given)[:, more]
        given[:, more] += packed(left, sizes[:, more], split[:, more], lacking[more])
    return given


def packed(available: Floats, sizes: Floats, split: Floats, count: Floats) -> Floats:
    """Return how many CPUs of each zone the packed choice takes; see `account.packed`.

    `count`: float64 [m], at most what is available; the others: float64 [Z, m].
    """
    left, needed = available, count.astype(np.float64)
    if ((available > 0) & (available == sizes)).any():
        order = _fullest_first(left)
        ranked, whole = _ranked(left, order), _ranked(sizes, order)
        for place, amounts in enumerate(ranked):
            is_whole = (amounts == whole[place]) & (amounts <= needed)
            taken = np.where(is_whole, amounts, 0.0)
            ranked[place] = amounts - taken
            needed -= taken
        left = _unranked(ranked, order)
    order = _fullest_first(left)
    ranked = _ranked(left, order)
    for kept in (_ranked(split, order), None) if split.any() else (None,):
        for place, amounts in enumerate(ranked):
            free = amounts if kept is None else np.maximum(amounts - kept[place], 0.0)
            taken = np.minimum(free, needed)
            ranked[place] = amounts - taken
            needed -= taken
    return available - _unranked(ranked, order)


def _fullest_first(available: Floats) -> NDArray[np.int64]:
    """Return each column's zones by what is available, then by number; int64 [Z, m]."""
    # To sort numbers with the zone as their last digits is faster than argsort.
    keys = available.astype(np.int64) << _ZONE_BITS
    keys += np.arange(len(keys))[:, None]
    by_column = np.ascontiguousarray(keys.T)
    by_column.sort(axis=1)
    return np.ascontiguousarray(by_column.T) & ((1 << _ZONE_BITS) - 1)


def _ranked(rows: Floats, order: NDArray[np.int64]) -> Floats:
    """Return each column in its order."""
    return np.take_along_axis(rows, order, axis=0)


def _unranked(ranked: Floats, order: NDArray[np.int64]) -> Floats:
    """Return the rows of which `_ranked` made `ranked`."""
    rows = np.empty_like(ranked)
    np.put_along_axis(rows, order, ranked, axis=0)
    return rows


def _hand_out(
    columns: Columns, name: str, given: Floats, used: Masks, is_init: bool, is_last: bool
) -> None:
    """Record what each zone gives; what is reusable goes first."""
    for zone, counts in enumerate(given):
        used |= (counts > 0).astype(np.uint8) << np.uint8(zone)
    if is_last:
        return
    reusable = columns.reusable.get(name)
    if reusable is None:
        if is_init:
            columns.reusable[name] = given.copy()
        columns.free[name] = columns.free[name] - given
    else:
        reused = np.minimum(reusable, given)
        columns.free[name] = columns.free[name] - (given - reused)
        columns.reusable[name] = reusable + (given - reused if is_init else -reused)
    if name == CPU:
        columns.split = np.minimum(columns.split, columns.free[CPU])


def _groups(
    columns: Columns, wanted: Mapping[str, int], decided: Decisions, asked: Bools, alive: Bools
) -> Masks:
    """Return the zones to take memory from; see `memory.static.choose_group`."""
    hints = Memory(columns, wanted)
    masks = np.where(asked, decided.masks, np.uint8(0))
    preferred = decided.preferred.copy()
    _extend(hints, masks, preferred, asked & (masks == 0), alive)
    asked = asked & alive
    full = asked & ~_has_room(columns, wanted, masks)
    _extend(hints, masks, preferred, full, alive)
    violates = np.zeros(columns.size, np.bool_)
    is_group = masks & (masks - 1) != 0
    for zone in range(columns.zones):
        groups = columns.groups[zone]
        violates |= columns.bits(masks, zone) & is_group & (groups != 0) & (groups != masks)
    alive &= ~(violates & asked)
    masks[~alive] = 0
    return masks


def _extend(hints: Memory, masks: Masks, preferred: Bools, asked: Bools, alive: Bools) -> None:
    """Put the narrowest hint that has all of its zones into `masks`, where `asked`."""
    for nodes in blocks(np.flatnonzero(asked)):
        narrowest = hints.narrowest(nodes, masks[nodes])
        is_preferred = hints.fewest[nodes] == np.bitwise_count(narrowest)
        is_found = narrowest != 0
        alive[nodes] &= is_found & (is_preferred | ~preferred[nodes])
        preferred[nodes] = np.where(is_found, is_preferred, preferred[nodes])
        masks[nodes] = np.where(is_found, narrowest, masks[nodes])


def _has_room(columns: Columns, wanted: Mapping[str, int], masks: Masks) -> Bools:
    room = np.ones(columns.size, np.bool_)
    inside = np.array([columns.bits(masks, zone) for zone in range(columns.zones)])
    for name, size in wanted.items():
        room &= (columns.free[name] * inside).sum(axis=0) >= size
    return room


def _charge(columns: Columns, wanted: Wanted, masks: Masks) -> None:
    """Take memory from the zones of `masks` in their order."""
    column = np.arange(columns.size)
    inside = [columns.bits(masks, zone) for zone in range(columns.zones)]
    for name, size in wanted.memory.items():
        reusable = columns.reusable_memory.get(name)
        if reusable is None and wanted.is_init:
            reusable = np.zeros((columns.everything + 1, columns.size))
            columns.reusable_memory[name] = reusable
        kept = np.zeros(columns.size) if reusable is None else reusable[masks, column]
        left = np.where(masks != 0, np.maximum(size - kept, 0.0), 0.0)
        free = columns.free[name].copy()
        for zone in range(columns.zones):
            taken = np.minimum(free[zone], left) * inside[zone]
            free[zone] -= taken
            left -= taken
        columns.free[name] = free
        if reusable is not None:
            after = np.maximum(kept, size) if wanted.is_init else np.maximum(kept - size, 0.0)
            reusable[masks, column] = np.where(masks != 0, after, kept)
    columns.groups = np.where(np.array(inside), masks, columns.groups)
