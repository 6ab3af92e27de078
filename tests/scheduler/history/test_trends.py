"""Trends of queues: older slices are longer, sums stay, and the bounds hold."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.history.trends import (
    MOST_CELLS,
    MOST_QUEUES,
    MOST_ROWS,
    SLICE_S,
    Figures,
    faded,
    fitting,
    observed,
)
from bindery.scheduler.usage.formula import History
from tests.sizes import examples

DAY = 86_400.0


def figures(*amounts: float) -> Figures:
    queues = tuple(f"q{index}" for index in range(len(amounts)))
    return Figures(queues, ("allocated/gpu",), np.array([amounts]))


def watched(seconds: float, every_s: float, amount: float = 4.0) -> History:
    """Return the trends of one queue that held `amount` all the time."""
    history, at = History.empty(), 0.0
    while at < seconds:
        history = observed(history, figures(amount), at, at + every_s)
        at += every_s
        history = faded(history, at)
    return history


def wide(slices: int, rows: int, queues: int) -> History:
    """Return trends of many queues, in which all hold something."""
    start = np.arange(slices, dtype=np.float64) * SLICE_S
    return History(
        tuple(f"queue-{index}" for index in range(queues)),
        tuple(f"row-{index}" for index in range(rows)),
        start,
        start + SLICE_S,
        np.full((slices, rows), SLICE_S),
        np.ones((slices, rows, queues)),
    )


def test_a_week_has_about_seventy_slices_and_the_last_hour_has_short_ones() -> None:
    history = watched(7 * DAY, 60.0)

    recent = history.end > 7 * DAY - 3_600
    assert 50 <= len(history) <= 80
    assert (history.end - history.start)[recent].max() <= 2 * SLICE_S
    assert np.allclose(history.held[:, 0, 0] / history.capacity[:, 0], 4.0)


@settings(max_examples=examples(21))
@given(
    st.lists(st.tuples(st.floats(0, 100, allow_subnormal=False), st.floats(1, 5_000)), max_size=40),
    st.floats(0.01, 100),
)
def test_joining_keeps_amounts_and_observed_time(
    steps: list[tuple[float, float]], grain: float
) -> None:
    history, at = History.empty(), 0.0
    for amount, gap in steps:
        history = observed(history, figures(amount), at, at + 10.0)
        at += gap + 10.0

    joined = faded(history, at, grain)

    assert len(joined) <= len(history)
    assert np.allclose(joined.held.sum(axis=0), history.held.sum(axis=0))
    assert np.allclose(joined.capacity.sum(axis=0), history.capacity.sum(axis=0))
    assert (joined.end >= joined.start).all()


@settings(max_examples=examples(8))
@given(st.integers(1, 80), st.integers(1, 30), st.integers(1, 3_000))
def test_trends_fit_their_bounds_whatever_there_is(slices: int, rows: int, queues: int) -> None:
    fit = fitting(wide(slices, rows, queues), slices * SLICE_S)

    assert len(fit.queues) <= MOST_QUEUES
    assert len(fit.resources) <= MOST_ROWS
    assert len(fit) == 1 or len(fit) * len(fit.resources) * len(fit.queues) <= MOST_CELLS


def test_queues_without_amounts_are_left_out() -> None:
    fit = fitting(observed(History.empty(), figures(0.0, 3.0, 0.0), 0.0, 10.0), 10.0)

    assert fit.queues == ("q1",)


def test_a_time_without_a_scheduler_is_not_counted() -> None:
    history = observed(History.empty(), figures(8.0), 0.0, 60.0)
    history = observed(history, figures(8.0), 240.0, 300.0)

    joined = faded(history, 300.0)

    assert len(joined) == 1
    assert joined.capacity.tolist() == [[120.0]]
    assert joined.held.tolist() == [[[960.0]]]
