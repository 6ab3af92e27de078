"""The history as text: it fits, it is read as it was written, and nonsense is refused."""

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.history.codec import MOST_BYTES, MOST_DECODED, Past, decode, encode
from bindery.scheduler.history.entries import MOST_ENTRIES, Gang, HistoryEntry, HistoryKind
from bindery.scheduler.history.record import HistoryRecord
from bindery.scheduler.history.trends import Figures, fitting
from bindery.scheduler.records.errors import RecordError
from bindery.scheduler.usage.formula import History
from tests.scheduler.history.test_entries import entries, planned
from tests.scheduler.history.test_trends import watched, wide
from tests.sizes import examples

HOSTILE = ["\x1b[31mred", "<script>alert(1)</script>", "\u202eevil", "n" * 253, "a\x00b", "…", '"']
VALID: dict[str, Any] = {
    "version": 1,
    "term": 3,
    "entries": [["Planned", ["team", "train", "q", True], 10.0, 20.0, 1, 8]],
    "queues": ["a", "b"],
    "rows": ["allocated/gpu"],
    "slices": [[0.0, 10.0, [10.0], [[4_000, 2_000]]]],
}


def packed(plain: bytes) -> str:
    return base64.b64encode(zlib.compress(plain)).decode()


def changed(**fields: Any) -> str:
    return packed(json.dumps(VALID | fields).encode())


@settings(max_examples=examples(21))
@given(st.lists(entries(), max_size=20), st.integers(0, 9))
def test_what_is_written_is_read_again(given_entries: list[HistoryEntry], term: int) -> None:
    trends = watched(3_600.0, 60.0)

    read = decode(encode(Past(tuple(given_entries), trends, term), 3_600.0))

    assert read.entries == tuple(given_entries)
    assert read.term == term
    assert read.trends.queues == trends.queues
    assert np.allclose(read.trends.held, trends.held)
    assert np.allclose(read.trends.capacity, trends.capacity)
    assert encode(read, 3_600.0) == encode(Past(tuple(given_entries), trends, term), 3_600.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_written_and_read_as_it_is(name: str) -> None:
    gang = Gang(name, name, name, True)
    entry = HistoryEntry(
        HistoryKind.EVICTED, gang, 1.0, 2.0, message=name, claimant=gang, nodes=(name,)
    )
    trends = History(
        (name,),
        (name,),
        np.array([1.0]),
        np.array([2.0]),
        np.array([[1.0]]),
        np.array([[[4.0]]]),
    )

    read = decode(encode(Past((entry,), trends), 2.0))

    assert read.entries == (entry,)
    assert read.trends.queues == (name,)


def test_a_full_record_of_the_largest_names_fits() -> None:
    random = np.random.default_rng(7)

    def word() -> str:
        return "".join(chr(97 + letter) for letter in random.integers(0, 26, 253))

    full = [
        HistoryEntry(
            HistoryKind.PLANNED,
            Gang(word(), word(), word(), True),
            float(at),
            float(at),
            message=word()[:200],
            claimant=Gang(word(), word(), word(), True),
            nodes=(word(), word()),
            node_count=2,
        )
        for at in range(MOST_ENTRIES)
    ]
    trends = fitting(wide(60, 19, 3_000), 18_000.0)

    text = encode(Past(tuple(full), trends, 1), 18_000.0)

    read = decode(text)
    assert len(text) <= MOST_BYTES
    assert read.entries
    assert read.entries == tuple(full[-len(read.entries) :])


def test_a_usual_record_of_a_thousand_queues_loses_nothing() -> None:
    usual = tuple(planned(f"train-{at}", float(at), f"team-{at % 50}") for at in range(2_000))
    trends = fitting(wide(50, 10, 1_000), 15_000.0)

    text = encode(Past(usual, trends), 15_000.0)

    assert decode(text).entries == usual
    assert len(decode(text).trends) == len(trends)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "%",
        "A" * (5 * MOST_BYTES),
        base64.b64encode(b"no zlib").decode(),
        packed(b""),
        packed(b"[" * 100_000),
        packed(b" " * (MOST_DECODED + 1)),
        changed()[:-8],
        changed(version=2),
        changed(extra=1),
        changed(term="x"),
        changed(queues=["a", "a"]),
        changed(rows=[]),
        changed(queues=["a"]),
        changed(slices=[[20.0, 10.0, [10.0], [[1]]]]),
        changed(slices=[[0.0, 10.0, [-1.0], [[1]]]]),
        changed(slices=[[0.0, 10.0, [1.0], [[-1]]]]),
        changed(slices=[[0.0, 10.0, [1.0], [[10**40]]]]),
        changed(slices=[[0.0, 10.0, [], []]]),
        changed(entries=[["Planned"]]),
        changed(entries=[["Danced", ["team", "train", "q", True], 1.0, 2.0]]),
        changed(entries=[["Planned", ["team", "train", "q", True], 3.0, 2.0]]),
        changed(entries=[["Planned", ["team", "train", "q", True], 1.0, 2.0, -1]]),
        changed(entries=[["Planned", ["team", "train", "q", True], 1.0, 1e300]]),
        changed(entries=VALID["entries"] * (MOST_ENTRIES + 1)),
        packed(json.dumps(VALID).replace("4000", "NaN").encode()),
    ],
    ids=str,
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        decode(text)


def test_the_valid_text_of_the_malformed_variants_is_read() -> None:
    assert decode(changed()).trends.held.tolist() == [[[40.0, 20.0]]]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=examples(70))
@given(st.sampled_from(list(VALID)), json_values)
def test_any_value_of_a_key_is_read_or_refused(key: str, value: Any) -> None:
    try:
        read = decode(changed(**{key: value}))
    except RecordError:
        return
    assert np.isfinite(read.trends.held).all()
    encode(read, 20.0)


@given(st.binary(max_size=60))
def test_any_text_is_read_or_refused(noise: bytes) -> None:
    for text in (noise.decode("latin-1"), packed(noise)):
        with pytest.raises(RecordError):
            decode(text)


# ---- the record in memory ----------------------------------------------------------------------


def figures(amount: float) -> Figures:
    return Figures(("q",), ("allocated/gpu",), np.array([[amount]]))


def test_the_text_stays_the_same_while_nothing_but_time_passes() -> None:
    record = HistoryRecord(3_600.0)
    record.sample(figures(8.0), 100.0)
    first = record.text(1)

    record.sample(figures(8.0), 110.0)
    later = record.text(1)
    record.add(planned("train", 115.0))

    assert later == first
    assert record.text(1) != first


def test_trends_alone_are_written_once_in_five_minutes() -> None:
    record = HistoryRecord(86_400.0)
    texts = []
    for at in range(0, 3_600, 10):
        record.sample(figures(8.0), 1_000.0 + at)
        texts.append(record.text(1))

    assert len(set(texts)) == 12


def test_the_next_term_continues_with_the_stored_record() -> None:
    first, second = HistoryRecord(3_600.0), HistoryRecord(3_600.0)
    first.begin()
    first.add(planned("train", 100.0))
    first.sample(figures(8.0), 100.0)
    first.sample(figures(8.0), 130.0)
    text = first.text(1)

    second.begin()
    second.sample(figures(4.0), 160.0)
    second.restore(text)
    second.sample(figures(4.0), 190.0)
    past = decode(second.text(2))

    assert [entry.gang.name for entry in past.entries] == ["train"]
    assert past.term == 2
    assert past.trends.held.sum() == 8.0 * 30 + 4.0 * 30
    assert past.trends.capacity.sum() == 60.0


def test_what_is_older_than_the_window_is_dropped() -> None:
    record = HistoryRecord(3_600.0)
    record.add(planned("train", 100.0))
    record.sample(figures(8.0), 100.0)
    record.sample(figures(8.0), 150.0)

    record.sample(figures(0.0), 10_000.0)

    assert record.past().entries == ()
    assert len(record.past().trends) == 0


def test_a_clock_that_is_set_back_adds_nothing() -> None:
    record = HistoryRecord(3_600.0)
    record.sample(figures(8.0), 1_000.0)

    record.sample(figures(8.0), 900.0)
    record.sample(figures(8.0), 910.0)

    assert record.past().trends.capacity.tolist() == [[10.0]]
