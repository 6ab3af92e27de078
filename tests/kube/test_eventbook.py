"""The choice and the times of event writes: the EventBook alone."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.events.book import (
    PENDING_MAX,
    SERIES_S,
    EventBook,
    ObjectReference,
    Occurrence,
    Series,
    Severity,
)


def occurrence(reason: str = "Reason", severity: Severity = Severity.NORMAL) -> Occurrence:
    return Occurrence(ObjectReference("v1", "Pod", "ns", "pod", "uid"), severity, reason, "text")


def drain(book: EventBook, now: float) -> list[Series]:
    taken = []
    while (series := book.take(now)) is not None:
        series.name = "written"
        taken.append(series)
    return taken


def test_repeats_become_one_event_with_a_count() -> None:
    book = EventBook(0.0)
    for second in range(5):
        book.observe(occurrence(), float(second))

    [series] = drain(book, 5.0)
    assert (series.count, series.first_at, series.last_at) == (5, 0.0, 4.0)


def test_the_count_is_not_written_at_every_repeat() -> None:
    book = EventBook(0.0, repeat_s=10.0)
    book.observe(occurrence(), 0.0)
    [series] = drain(book, 0.0)

    for second in range(1, 9):
        book.observe(occurrence(), float(second))
        assert book.take(float(second)) is None
    assert book.wait_s(8.0) == 2.0
    assert drain(book, 10.0) == [series]
    assert series.count == 9


def test_an_occurrence_long_after_the_last_is_a_new_event() -> None:
    book = EventBook(0.0)
    book.observe(occurrence(), 0.0)
    [first] = drain(book, 0.0)
    book.observe(occurrence(), SERIES_S)

    [second] = drain(book, SERIES_S)
    assert second is not first
    assert second.count == 1


def test_a_different_message_is_a_separate_event() -> None:
    book = EventBook(0.0)
    book.observe(occurrence("One"), 0.0)
    book.observe(occurrence("Two"), 0.0)

    assert [series.occurrence.reason for series in drain(book, 0.0)] == ["One", "Two"]


def test_warnings_are_written_first() -> None:
    book = EventBook(0.0, burst=2)
    book.observe(occurrence("Normal"), 0.0)
    book.observe(occurrence("Bad", Severity.WARNING), 0.0)
    book.observe(occurrence("Worse", Severity.WARNING), 0.0)

    assert [series.occurrence.reason for series in drain(book, 0.0)] == ["Bad", "Worse"]


def test_overflow_drops_the_oldest_normal_event_and_never_a_warning_instead() -> None:
    book = EventBook(0.0)
    for number in range(PENDING_MAX):
        severity = Severity.NORMAL if number < 2 else Severity.WARNING
        assert book.observe(occurrence(str(number), severity), 0.0) is None

    dropped = [
        book.observe(occurrence("w1", Severity.WARNING), 0.0),
        book.observe(occurrence("n1"), 0.0),
        book.observe(occurrence("w2", Severity.WARNING), 0.0),
        book.observe(occurrence("n2"), 0.0),
        book.observe(occurrence("w3", Severity.WARNING), 0.0),
        book.observe(occurrence("w4", Severity.WARNING), 0.0),
    ]

    assert [each and each.reason for each in dropped] == ["0", "1", "n1", "n2", "w3", "w4"]


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 40)), max_size=60))
def test_writes_do_not_exceed_the_rate_limit(steps: list[tuple[float, int]]) -> None:
    book = EventBook(0.0, burst=10, per_second=5.0, repeat_s=0.0)
    now = 0.0
    written = 0
    for gap_s, kinds in steps:
        now += gap_s
        for number in range(kinds):
            book.observe(occurrence(str(number)), now)
        written += len(drain(book, now))
        assert written <= 10 + 5.0 * now + 1e-6


@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 8)), max_size=30))
def test_the_reported_wait_is_the_time_until_the_next_write(
    steps: list[tuple[float, int]],
) -> None:
    book = EventBook(0.0, burst=2, per_second=1.0, repeat_s=4.0)
    now = 0.0
    for gap_s, kinds in steps:
        now += gap_s
        for number in range(kinds):
            book.observe(occurrence(str(number)), now)
        drain(book, now)
        wait_s = book.wait_s(now)
        if wait_s is None:
            now += SERIES_S  # the book's time does not go back either
            assert book.take(now) is None
            continue
        assert wait_s > 0
        assert book.take(now + wait_s * 0.99 - 1e-6) is None
        now += wait_s + 1e-6
        assert book.take(now) is not None


def test_minor_events_are_written_last_and_dropped_first() -> None:
    book = EventBook(0.0, burst=2, per_second=1.0)
    where = ObjectReference("v1", "Pod", "ns", "pod", "uid")
    minor = [
        Occurrence(where, Severity.WARNING, f"Minor{n}", "text", is_minor=True) for n in range(2)
    ]
    for each in (*minor, occurrence("Plain"), occurrence("Bad", Severity.WARNING)):
        assert book.observe(each, 0.0) is None

    assert [series.occurrence.reason for series in drain(book, 0.0)] == ["Bad", "Plain"]
    filling = [occurrence(f"Plain{n}") for n in range(PENDING_MAX - 1)]
    assert [book.observe(each, 0.0) for each in filling][-1] == minor[0]


def test_deferred_events_are_created_only_when_no_others_wait() -> None:
    book, made = EventBook(0.0, burst=2, per_second=1.0), []

    def pods() -> Iterator[Occurrence]:
        for number in range(3):
            made.append(number)
            yield occurrence(f"Pod{number}")

    book.observe_later(pods(), 0.0)
    book.observe(occurrence("Gang"), 0.0)

    assert [series.occurrence.reason for series in drain(book, 0.0)] == ["Gang", "Pod0"]
    assert made == [0]
    assert book.wait_s(0.0) == 1.0
    assert [series.occurrence.reason for series in drain(book, 1.0)] == ["Pod1"]
    assert drain(book, 1000.0) == [], "what happened long ago is not told any more"
    assert book.wait_s(1000.0) is None
