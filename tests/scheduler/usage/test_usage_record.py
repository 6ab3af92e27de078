"""The scheduler's own record of past usage: counting, expiry and writing."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.records.errors import RecordError
from bindery.scheduler.usage.codec import MOST_BYTES, decode, encode
from bindery.scheduler.usage.formula import Amounts, Decay, History, Moment
from bindery.scheduler.usage.record import MOST_SLICES, UsageRecord
from tests.scheduler.schedulerworld import NOW
from tests.sizes import examples

HOUR = 3600.0


def moment(at: float, held: Sequence[float], capacity: float = 8.0, **more: Any) -> Moment:
    """Return a moment `at` seconds after the start; `held`: GPUs of queues a, b, …"""
    queues = more.get("queues", [chr(ord("a") + index) for index in range(len(held))])
    return Moment(
        now=NOW + at,
        queues=queues,
        resources=["gpu"],
        held=np.array([held]),
        capacity=np.array([capacity]),
    )


def played(decay: Decay, *moments: Moment) -> tuple[UsageRecord, Amounts]:
    """Return the record after `moments`, and its last usage of each queue's GPUs."""
    record = UsageRecord(decay)
    usage = np.zeros((1, 0))
    for each in moments:
        usage = record.account(each)
    return record, usage[0]


# ---- what counts -------------------------------------------------------------------------------


def test_usage_is_the_allocated_part_of_the_capacity() -> None:
    _, usage = played(Decay(HOUR), moment(0, [0, 0]), moment(600, [6, 2]), moment(1200, [2, 0]))

    assert usage.tolist() == [0.5, 0.125]


def test_temporary_capacity_counts_for_the_time_it_existed() -> None:
    _, usage = played(
        Decay(HOUR), moment(0, [0]), moment(600, [4], capacity=8), moment(1200, [4], capacity=24)
    )

    assert usage.tolist() == [0.25]


def test_usage_counts_half_after_one_half_life() -> None:
    # From 0 to 600 s all is held, then nothing: the older part weighs half of the newer.
    _, usage = played(Decay(HOUR, 600), moment(0, [8]), moment(600, [8]), moment(1200, [0]))

    assert usage[0] == pytest.approx(1 / 3)


def test_usage_before_the_window_does_not_count() -> None:
    _, usage = played(Decay(600), moment(0, [8]), moment(900, [8]), moment(1600, [0]))

    assert usage[0] == 0.0


def test_only_the_part_of_a_slice_within_the_window_counts() -> None:
    _, usage = played(Decay(1000), moment(0, [8]), moment(800, [8]), moment(1300, [0]))

    assert usage[0] == pytest.approx(500 / 1000)


@settings(max_examples=examples(10))
@given(
    st.lists(st.integers(1, 900), min_size=2, max_size=40),
    st.sampled_from([None, 300.0, 1800.0]),
    st.floats(0, 8),
)
def test_the_sampling_frequency_does_not_matter_while_nothing_changes(
    steps_s: list[int], half_life_s: float | None, held: float
) -> None:
    at = np.cumsum([0, *steps_s])

    _, usage = played(Decay(HOUR, half_life_s), *(moment(float(t), [held]) for t in at))

    assert usage[0] == pytest.approx(held / 8)


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 8)), min_size=1, max_size=60))
def test_the_usage_of_siblings_never_exceeds_the_capacity(steps: list[tuple[int, int]]) -> None:
    moments, at = [moment(0, [0, 0])], 0
    for elapsed_s, held in steps:
        at += elapsed_s
        moments.append(moment(at, [held, 8 - held]))

    _, usage = played(Decay(HOUR, 900), *moments)

    assert usage.sum() == pytest.approx(1.0)
    assert (usage >= 0).all()


def test_time_without_samples_does_not_count() -> None:
    record, _ = played(Decay(HOUR), moment(0, [8]), moment(600, [8]))
    record.interrupt()

    record.account(moment(1200, [0]))
    usage = record.account(moment(1800, [0]))

    assert usage[0, 0] == 0.5


def test_a_clock_that_goes_back_adds_no_usage_and_no_error() -> None:
    record, before = played(Decay(HOUR), moment(0, [8]), moment(600, [8]))

    for at in (300, 400, 1000):
        usage = record.account(moment(at, [4]))

    assert before[0] == 1.0
    assert 0.5 <= usage[0, 0] < 1.0
    assert (record.history.end > record.history.start).all()


def test_usage_recorded_by_a_clock_that_was_ahead_is_dropped() -> None:
    ahead, _ = played(Decay(HOUR), moment(10 * HOUR, [8]), moment(11 * HOUR, [8]))
    record = UsageRecord(Decay(HOUR))
    record.precede(ahead.history)

    record.account(moment(0, [2]))
    usage = record.account(moment(600, [2]))

    assert usage[0, 0] == 0.25
    assert len(record.history) == 1


def test_a_queue_has_no_usage_before_its_creation() -> None:
    record, _ = played(Decay(HOUR), moment(0, [4]), moment(600, [4]))

    usage = record.account(moment(1200, [4, 4]))

    assert usage[0].tolist() == [0.5, 0.25]


def test_the_order_of_queues_makes_no_difference() -> None:
    record, _ = played(Decay(HOUR), moment(0, [4, 2]), moment(600, [4, 2]))

    usage = record.account(moment(600, [2, 4], queues=["b", "a"]))

    assert usage[0].tolist() == [0.25, 0.5]


def test_two_queries_at_the_same_time_give_the_same_result() -> None:
    record, first = played(Decay(HOUR), moment(0, [4]), moment(600, [4]))

    second = record.account(moment(600, [8]))

    assert second[0].tolist() == first.tolist()


def test_the_record_stays_small_after_any_number_of_interruptions() -> None:
    record = UsageRecord(Decay(100 * HOUR))
    for start in range(0, 40000, 200):
        record.account(moment(start, [8]))
        record.account(moment(start + 100, [4]))
        record.interrupt()

    usage = record.account(moment(40000, [4]))

    assert len(record.history) <= MOST_SLICES
    assert usage[0, 0] == pytest.approx(0.5)


# ---- as text -----------------------------------------------------------------------------------


def history(slices: int, queues: int, seed: int = 1) -> History:
    """Return a history in which each queue held something in each slice."""
    drawn = np.random.default_rng(seed).random((slices, 2, queues))
    start = NOW + 60.0 * np.arange(slices, dtype=np.float64)
    return History(
        queues=tuple(f"team-{index}" for index in range(queues)),
        resources=("cpu", "nvidia.com/gpu"),
        start=start,
        end=start + 60.0,
        capacity=np.full((slices, 2), 8000.0 * 60),
        held=drawn / drawn.sum(axis=2, keepdims=True) * 8000.0 * 60,
    )


def parts(of: History) -> dict[tuple[str, str], float]:
    found = of.parts(Decay(7 * 24 * HOUR), NOW + HOUR)
    return {
        (queue, resource): float(found[row, column])
        for row, resource in enumerate(of.resources)
        for column, queue in enumerate(of.queues)
    }


def test_a_record_survives_writing_and_reading() -> None:
    written = history(slices=20, queues=5)

    read, term = decode(encode(written, term=7))

    assert term == 7
    assert parts(read) == pytest.approx(parts(written), abs=1e-6)


def test_reading_and_writing_again_changes_nothing() -> None:
    text = encode(history(slices=20, queues=5), term=7)

    assert encode(*decode(text)) == text


def test_a_queue_that_held_nothing_is_not_written() -> None:
    written = history(slices=3, queues=2)
    written.held[:, :, 1] = 0.0

    assert json.loads(encode(written, term=1))["queues"] == ["team-0"]


def test_a_large_record_is_written_in_coarser_slices_with_the_same_usage() -> None:
    written = history(slices=64, queues=3000)

    text = encode(written, term=1)

    read, _ = decode(text)
    assert len(text) <= MOST_BYTES
    assert len(read) < 64
    assert parts(read) == pytest.approx(parts(written), abs=1e-6)


def test_a_record_that_can_never_fit_is_dropped() -> None:
    read, _ = decode(encode(history(slices=4, queues=50), term=1, most_bytes=200))

    assert len(read) == 0


def test_the_record_of_an_earlier_process_precedes_the_record_of_this_one() -> None:
    earlier, _ = played(Decay(HOUR), moment(0, [8]), moment(600, [8]))
    record, _ = played(Decay(HOUR), moment(700, [0, 0]), moment(1300, [0, 4]))

    record.precede(decode(encode(earlier.history, term=1))[0])

    usage = record.account(moment(1300, [0, 4]))
    assert usage[0].tolist() == pytest.approx([0.5, 0.25])


VALID: dict[str, Any] = {
    "version": 1,
    "term": 1,
    "queues": ["a"],
    "resources": ["gpu"],
    "slices": [{"start": 1.0, "end": 2.0, "capacity": [8.0], "held": [[500000]]}],
}


def changed(**slice_or_record: Any) -> str:
    record = json.loads(json.dumps(VALID))
    for key, value in slice_or_record.items():
        (record if key in record else record["slices"][0])[key] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        "usage: yaml",
        "[" * 100_000,
        changed(version=2),
        changed(queues=["a", "a"], held=[[1, 1]]),
        changed(resources=["gpu", "gpu"], capacity=[8, 8], held=[[1], [1]]),
        changed(queues=["a", "b"]),
        changed(resources=[]),
        changed(capacity=[]),
        changed(capacity=[-8.0]),
        changed(capacity=["8"]),
        changed(capacity=[1e308], held=[[10**18]]),
        changed(held=[[-1]]),
        changed(held=[[0.5]]),
        changed(held=[[10**40]]),
        changed(held=[]),
        changed(start=2.0, end=2.0),
        changed(start=-1.0),
        changed(slices=[{}]),
        changed(slices=[VALID["slices"][0] | {"capacity": [float("nan")]}]),
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        decode(text)


def test_the_valid_text_of_the_malformed_variants_is_read() -> None:
    read, _ = decode(changed())

    assert read.held.tolist() == [[[4.0]]]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.sampled_from([*VALID, "start", "end", "capacity", "held"]), json_values)
def test_any_value_of_a_key_is_read_or_refused(key: str, value: Any) -> None:
    text = changed(**{key: value})

    try:
        read, _ = decode(text)
    except RecordError:
        return

    assert np.isfinite(read.parts(Decay(HOUR), NOW)).all()
