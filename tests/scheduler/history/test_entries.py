"""Entries of the history: what is folded, what is dropped, and which sums stay."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.history.entries import (
    FOLDED_WITHIN_S,
    MOST_NODES,
    MOST_OF_GANG,
    NO_GANG,
    Gang,
    HistoryBook,
    HistoryEntry,
    HistoryKind,
    bounded,
)
from tests.sizes import examples

NAMES = st.sampled_from(["a", "b", "c"])
GANGS = st.builds(Gang, NAMES, NAMES, st.just("q"), st.booleans())


@st.composite
def entries(draw: st.DrawFn) -> HistoryEntry:
    since = draw(st.integers(0, 50_000))
    nodes = tuple(sorted(draw(st.sets(st.sampled_from(["n1", "n2", "n3", "n4", "n5"])))))
    return HistoryEntry(
        draw(st.sampled_from(list(HistoryKind))),
        draw(GANGS),
        float(since),
        float(since + draw(st.integers(0, 2_000))),
        times=draw(st.integers(1, 3)),
        pods=draw(st.integers(0, 9)),
        seconds=float(draw(st.integers(0, 100))),
        reason=draw(NAMES),
        claimant=draw(st.sampled_from([NO_GANG]) | GANGS),
        moved=draw(st.integers(0, 3)),
        nodes=nodes[:MOST_NODES],
        node_count=len(nodes),
    )


def sums(found: list[HistoryEntry]) -> Counter[tuple[object, ...]]:
    """Return the summed numbers of each subject."""
    total: Counter[tuple[object, ...]] = Counter()
    for entry in found:
        numbers = {"times": entry.times, "pods": entry.pods, "seconds": int(entry.seconds)}
        for name, amount in (numbers | {"moved": entry.moved}).items():
            total[entry.subject, name] += amount
    return total


def planned(name: str, at: float, namespace: str = "team", pods: int = 1) -> HistoryEntry:
    gang = Gang(namespace, name, "q", True)
    return HistoryEntry(HistoryKind.PLANNED, gang, at, at, pods=pods, reason="Succeeded")


@settings(max_examples=examples(35))
@given(st.lists(entries(), max_size=40))
def test_folding_keeps_the_sums_of_each_subject(given_entries: list[HistoryEntry]) -> None:
    kept = HistoryBook(given_entries).bound(oldest_s=-1.0)

    assert sums(kept) == sums(given_entries)
    assert all(len(entry.nodes) <= MOST_NODES for entry in kept)
    assert all(entry.node_count >= len(entry.nodes) for entry in kept)


@settings(max_examples=examples(35))
@given(st.lists(entries(), max_size=60), st.integers(0, 40), st.integers(-1, 60_000))
def test_bounds_hold_and_the_newest_of_each_namespace_stay(
    given_entries: list[HistoryEntry], most: int, oldest: int
) -> None:
    kept = bounded(given_entries, float(oldest), most)

    assert len(kept) <= most
    assert all(entry.until > oldest for entry in kept)
    assert [entry.until for entry in kept] == sorted(entry.until for entry in kept)
    for namespace in {entry.gang.namespace for entry in kept}:
        own = [e.until for e in given_entries if e.gang.namespace == namespace]
        here = [e.until for e in kept if e.gang.namespace == namespace]
        assert here == sorted(own)[len(own) - len(here) :]


def test_a_namespace_with_many_entries_loses_its_own_before_others_lose_any() -> None:
    flood = [planned(f"g{at}", float(at), "flood") for at in range(1_000)]
    calm = [planned("train", 5.0, "calm"), planned("serve", 6.0, "calm")]

    kept = bounded([*flood, *calm], -1.0, most=10)

    assert Counter(e.gang.namespace for e in kept) == {"flood": 8, "calm": 2}


def test_a_gang_that_is_planned_again_and_again_has_a_bounded_history() -> None:
    book = HistoryBook(planned("train", at * 2 * FOLDED_WITHIN_S) for at in range(200))

    kept = book.bound(oldest_s=-1.0)

    assert len(kept) == MOST_OF_GANG
    assert kept[-1].until == 199 * 2 * FOLDED_WITHIN_S


def test_equal_entries_within_ten_minutes_are_one() -> None:
    book = HistoryBook([planned("train", 0.0, pods=8), planned("train", 60.0, pods=2)])
    book.add(planned("train", 5_000.0, pods=8))

    kept = book.bound(oldest_s=-1.0)

    assert [(e.since, e.until, e.times, e.pods) for e in kept] == [
        (0.0, 60.0, 2, 10),
        (5_000.0, 5_000.0, 1, 8),
    ]
