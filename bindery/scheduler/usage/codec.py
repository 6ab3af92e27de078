"""The usage record as text of bounded size, for a ConfigMap.

Used by `recordkeeper.py`. The amounts of a queue, with all queues below, are written as millionths
of the capacity of their time slice; higher precision is lost. Invariant: for any text, `decode`
returns a valid history or raises `RecordError`.
"""

from typing import Final

import msgspec
import numpy as np

from bindery.scheduler.records.errors import RecordError
from bindery.scheduler.usage.formula import History

MOST_BYTES: Final = 512 * 1024
"""Half the size limit of a ConfigMap. Enough for 1,000 queues, 30 slices and three resources."""
VERSION: Final = 1
_WHOLE: Final = 1e6
_MOST: Final = 1e30
"""Far more than any cluster offers in any time, and far below the largest float."""


class _Slice(msgspec.Struct, frozen=True):
    start: float
    end: float
    capacity: list[float]
    """[resource], unit-seconds."""
    held: list[list[int]]
    """[resource][queue], millionths of `capacity`."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    term: int
    queues: list[str]
    resources: list[str]
    slices: list[_Slice]


def encode(history: History, term: int, most_bytes: int = MOST_BYTES) -> str:
    """Return `history` as text of at most `most_bytes`, with fewer slices if necessary.

    Queues without usage are left out. `term`: the fencing token of the writer. If not even one
    slice fits, the result is an empty history.
    """
    used = np.flatnonzero(history.held.sum(axis=(0, 1)))
    queues = tuple(history.queues[index] for index in used)
    kept = history.arranged(queues, history.resources)
    while True:
        text = _encode(kept, term)
        if len(text) <= most_bytes:
            return text.decode()
        if len(kept) <= 1:
            return _encode(History.empty(), term).decode()
        kept = kept.coarsened(len(kept) // 2)


def decode(text: str) -> tuple[History, int]:
    """Return the history in `text` and its writer's term; raises RecordError with a reason."""
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(str(error)) from error
    if record.version != VERSION:
        raise RecordError(f"unknown version {record.version}")
    if len(set(record.queues)) < len(record.queues):
        raise RecordError("a queue is named twice")
    if len(set(record.resources)) < len(record.resources):
        raise RecordError("a resource is named twice")
    shape = (len(record.resources), len(record.queues))
    for index, item in enumerate(record.slices):
        _check(index, item, shape)
    capacity = np.array([item.capacity for item in record.slices], dtype=np.float64)
    held = np.array([item.held for item in record.slices], dtype=np.float64)
    capacity = capacity.reshape(len(record.slices), shape[0])
    held = held.reshape(len(record.slices), *shape) / _WHOLE * capacity[:, :, None]
    history = History(
        tuple(record.queues),
        tuple(record.resources),
        np.array([item.start for item in record.slices], dtype=np.float64),
        np.array([item.end for item in record.slices], dtype=np.float64),
        capacity,
        held,
    )
    return history, record.term


def readable(text: str) -> History | None:
    """Return the history in `text`; None if the text is empty or malformed."""
    try:
        return decode(text)[0] if text else None
    except RecordError:
        return None


def _encode(history: History, term: int) -> bytes:
    capacity = history.capacity[:, :, None]
    parts = np.divide(history.held, capacity, out=np.zeros_like(history.held), where=capacity > 0)
    millionths = np.rint(parts * _WHOLE).astype(np.int64)
    slices = [
        _Slice(
            start=round(float(history.start[index]), 3),
            end=round(float(history.end[index]), 3),
            # Nine digits keep the text short and are far more precise than the millionths.
            capacity=[float(f"{amount:.9g}") for amount in history.capacity[index]],
            held=millionths[index].tolist(),
        )
        for index in range(len(history))
    ]
    record = _Record(VERSION, term, list(history.queues), list(history.resources), slices)
    return msgspec.json.encode(record)


def _check(index: int, item: _Slice, shape: tuple[int, int]) -> None:
    resources, queues = shape
    if not 0 <= item.start < item.end:
        raise RecordError(f"slices[{index}]: it ends before it begins")
    numbers = [item.end, *item.capacity, *(amount for row in item.held for amount in row)]
    if not 0 <= min(numbers) <= max(numbers) <= _MOST:
        raise RecordError(f"slices[{index}]: a number is negative or out of range")
    is_whole = len(item.capacity) == len(item.held) == resources
    if not is_whole or any(len(row) != queues for row in item.held):
        raise RecordError(f"slices[{index}]: its numbers do not fit the queues and resources")
