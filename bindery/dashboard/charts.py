"""The lines of a trend, as points of an inline picture of 100 by 100. Pure.

A mean is valid for its whole time slice, so a line is level in it; times of which nothing is kept
are gaps.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from bindery.dashboard.past import QueuePoint

_GAP: Final = 0.01
"""A pause longer than this part of the whole time is a gap in the line."""


def top(points: Sequence[QueuePoint], *figures: str) -> float:
    """Return the largest amount of `figures`, which is the upper edge of the picture."""
    amounts = (getattr(point, figure) for point in points for figure in figures)
    return max((amount for amount in amounts if amount is not None), default=0.0) or 1.0


def lines(points: Sequence[QueuePoint], figure: str, edge: float) -> Iterator[str]:
    """Yield the `points` attributes of the lines of `figure`; `edge`: the amount at the top."""
    if not points:
        return
    first, last = points[0].begun, points[-1].at
    span = max(last - first, 1e-9)
    line: list[str] = []
    before: QueuePoint | None = None
    for point in points:
        amount = getattr(point, figure)
        is_gap = before is not None and point.begun - before.at > _GAP * span
        if line and (amount is None or is_gap):
            yield " ".join(line)
            line = []
        if amount is not None:
            height = 100 - 100 * min(max(amount / edge, 0.0), 1.0)
            line += (
                f"{100 * (each - first) / span:.2f},{height:.2f}"
                for each in (point.begun, point.at)
            )
        before = point
    if line:
        yield " ".join(line)
