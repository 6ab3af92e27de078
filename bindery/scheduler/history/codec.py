"""The history as text of bounded size, for a ConfigMap: JSON, compressed, in base64.

Amounts are rounded to three digits, and to thousandths. Invariant: for any text, `decode` returns a
valid history or raises `RecordError`.
"""

import base64
import binascii
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.history.entries import MOST_ENTRIES, HistoryEntry, bounded
from bindery.scheduler.history.trends import MOST_CELLS, faded
from bindery.scheduler.records.errors import RecordError
from bindery.scheduler.usage.formula import Amounts, History

MOST_BYTES: Final = 256 * 1024
"""A quarter of the size limit of a ConfigMap."""
MOST_DECODED: Final = 8 * 1024 * 1024
"""Maximum size of the JSON, in bytes; text that is larger when decompressed is malformed."""
VERSION: Final = 1
_PER_UNIT: Final = 1_000
_MOST: Final = 1e15
"""Far more than any amount or time, in thousandths still exact as a float."""
_LEVEL: Final = 4


@dataclass(frozen=True)
class Past:
    """All that a record has."""

    entries: tuple[HistoryEntry, ...] = ()
    """Oldest first, by their end."""
    trends: History = field(default_factory=History.empty)
    """Rows as in `trends.py`; the capacity is the observed time in seconds."""
    term: int = 0
    """The fencing token of the writer."""


class _TrendSlice(msgspec.Struct, frozen=True, array_like=True):
    start: float
    end: float
    observed: list[float]
    """[row], seconds."""
    means: list[list[int]]
    """[row][queue], thousandths; the trailing zeros of a row are left out."""


class _HistoryRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    term: int
    entries: list[HistoryEntry]
    queues: list[str]
    rows: list[str]
    slices: list[_TrendSlice]


def encode(past: Past, now: float, most_bytes: int = MOST_BYTES) -> str:
    """Return `past` as text of at most `most_bytes`: if necessary, with less of it."""
    entries, trends, grain = past.entries, past.trends, 2.0
    while True:
        plain = _json(entries, trends, past.term)
        text = base64.b64encode(zlib.compress(plain, _LEVEL)).decode("ascii")
        if len(text) <= most_bytes and len(plain) <= MOST_DECODED:
            return text
        if not entries and not len(trends):
            raise ValueError(f"an empty record does not fit {most_bytes} bytes")
        entries = tuple(bounded(entries, 0.0, len(entries) // 2))
        trends = faded(trends, now, grain) if len(trends) > 1 and grain > 0.1 else History.empty()
        grain /= 2


def decode(text: str) -> Past:
    """Return the history in `text`; raises RecordError with a reason."""
    try:
        record = msgspec.json.decode(_unpacked(text), type=_HistoryRecord)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RecordError(str(error)) from error
    if record.version != VERSION:
        raise RecordError(f"unknown version {record.version}")
    if len(record.entries) > MOST_ENTRIES:
        raise RecordError(f"{len(record.entries)} entries")
    for index, entry in enumerate(record.entries):
        numbers = (entry.since, entry.until, entry.times, entry.pods, entry.seconds, entry.moved)
        if not 0 <= min(numbers) <= max(numbers) <= _MOST or entry.since > entry.until:
            raise RecordError(f"entries[{index}]: a number is out of range")
    return Past(tuple(record.entries), _trends(record), record.term)


def _json(entries: tuple[HistoryEntry, ...], trends: History, term: int) -> bytes:
    observed = trends.capacity[:, :, None]
    means = np.divide(trends.held, observed, out=np.zeros_like(trends.held), where=observed > 0)
    whole = _rounded(np.minimum(means, _MOST / _PER_UNIT) * _PER_UNIT)
    slices = [
        _TrendSlice(
            round(float(trends.start[index]), 1),
            round(float(trends.end[index]), 1),
            [round(float(each), 1) for each in trends.capacity[index]],
            [np.trim_zeros(row, "b").tolist() for row in whole[index]],
        )
        for index in range(len(trends))
    ]
    queues, rows = list(trends.queues), list(trends.resources)
    record = _HistoryRecord(VERSION, term, list(entries), queues, rows, slices)
    return msgspec.json.encode(record)


def _rounded(amounts: Amounts) -> NDArray[np.int64]:
    """Return `amounts` as integers of three digits and zeros, which compress well."""
    power = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(amounts, 1.0))) - 2, 0)
    return np.asarray(np.rint(amounts / power) * power, dtype=np.int64)


def _unpacked(text: str) -> bytes:
    """Return the JSON in `text`; raises RecordError."""
    if len(text) > 4 * MOST_BYTES:
        raise RecordError(f"{len(text)} bytes are more than a record has")
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(base64.b64decode(text, validate=True), MOST_DECODED)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise RecordError(str(error)) from error
    if not stream.eof:
        raise RecordError("it is cut off, or too large")
    return unpacked


def _trends(record: _HistoryRecord) -> History:
    """Return the trends of `record`; raises RecordError."""
    shape = (len(record.slices), len(record.rows), len(record.queues))
    if len(set(record.queues)) < shape[2] or len(set(record.rows)) < shape[1]:
        raise RecordError("a queue or a row is named twice")
    if shape[0] > 1 and shape[0] * shape[1] * shape[2] > MOST_CELLS:
        raise RecordError(f"{shape[0]} slices of {shape[1]} rows and {shape[2]} queues")
    means = np.zeros(shape)
    for index, item in enumerate(record.slices):
        _check(index, item, shape)
        for row, amounts in enumerate(item.means):
            means[index, row, : len(amounts)] = amounts
    observed = np.array([item.observed for item in record.slices], dtype=np.float64)
    observed = observed.reshape(shape[:2])
    return History(
        tuple(record.queues),
        tuple(record.rows),
        np.array([item.start for item in record.slices], dtype=np.float64),
        np.array([item.end for item in record.slices], dtype=np.float64),
        observed,
        means / _PER_UNIT * observed[:, :, None],
    )


def _check(index: int, item: _TrendSlice, shape: tuple[Any, ...]) -> None:
    _, rows, queues = shape
    numbers = [item.end, *item.observed, *(amount for row in item.means for amount in row)]
    if not 0 <= item.start <= item.end or not 0 <= min(numbers) <= max(numbers) <= _MOST:
        raise RecordError(f"slices[{index}]: a number is out of range")
    if not len(item.observed) == len(item.means) == rows:
        raise RecordError(f"slices[{index}]: its numbers do not fit the rows")
    if any(len(row) > queues for row in item.means):
        raise RecordError(f"slices[{index}]: its numbers do not fit the queues")
