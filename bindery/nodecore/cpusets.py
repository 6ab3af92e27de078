"""Sets of CPUs, and the list format of Linux for them ("0-3,8")."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.options import parse_int

CpuSet = frozenset[int]
"""The ids of logical CPUs (hardware threads)."""

EMPTY: CpuSet = frozenset()

HIGHEST_CPU: Final = (1 << 16) - 1
"""The highest id that is read. Linux has at most 8,192 CPUs."""


class CpuSetError(NodeCoreError, ValueError):
    """The text is not a list of CPUs."""


def format_cpus(cpus: Iterable[int]) -> str:
    """Return `cpus` in the list format: ascending, with ranges."""
    ids = sorted(cpus)
    if not ids:
        return ""
    starts = [ids[0], *(after for before, after in pairwise(ids) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ids) if after != before + 1), ids[-1]]
    return ",".join(
        str(start) if start == end else f"{start}-{end}"
        for start, end in zip(starts, ends, strict=True)
    )


def parse_cpus(text: str) -> CpuSet:
    """Return the CPUs of a list such as "0-3,8"; the empty text is the empty set.

    Raises:
        CpuSetError: the text is no list of CPUs, or has ids that no machine has.
    """
    if text == "":
        return EMPTY
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start = _number(first)
        end = _number(last) if dash else start
        if start > end:
            raise CpuSetError(f'invalid range "{part}" ({start} > {end})')
        if end > HIGHEST_CPU:  # a range of billions would take all memory
            raise CpuSetError(f'invalid range "{part}" ({end} > {HIGHEST_CPU})')
        cpus.update(range(start, end + 1))
    return frozenset(cpus)


def _number(text: str) -> int:
    try:
        return parse_int(text)
    except ValueError as error:
        raise CpuSetError(str(error)) from error
