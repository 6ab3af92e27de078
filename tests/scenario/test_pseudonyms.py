"""Pseudonyms have the orders of their words."""

from collections.abc import Set as AbstractSet

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bindery.scenario.hiding.pseudonyms import PSEUDONYM, between, pseudonyms
from bindery.scheduler.model.trees import natural
from tests.sizes import examples

WORDS = st.sets(st.text("ab-./019_", min_size=1, max_size=6), max_size=14)


def padded(name: str) -> tuple[str, str]:
    """Return the key by which the pods of a gang are sorted: their names, with padded numbers."""
    head = name.rstrip("0123456789")
    return f"{head}{int(name[len(head) :] or 0):012d}", name


@given(WORDS)
@example({"train1", "train-eval1", "train10", "train9"})
@example({"0", "/"})
@settings(max_examples=examples(52))
def test_pseudonyms_are_sorted_as_words_and_with_numbers(words: AbstractSet[str]) -> None:
    found = pseudonyms(words)

    assert len({*found.values()}) == len(words)
    assert [found[word] for word in sorted(words)] == sorted(found.values())
    assert [found[word] for word in sorted(words, key=natural)] == sorted(
        found.values(), key=natural
    )


@given(WORDS)
@example({"train", "train-1"})
@settings(max_examples=examples(52))
def test_pseudonyms_of_pods_are_sorted_as_the_pods_of_a_gang(words: AbstractSet[str]) -> None:
    found = pseudonyms(words, pods=words)

    in_order = [found[word] for word in sorted(words, key=padded)]

    assert in_order == sorted(found.values(), key=padded)


@given(WORDS)
@settings(max_examples=examples(18))
def test_pseudonyms_are_found_in_a_text(words: AbstractSet[str]) -> None:
    found = pseudonyms(words)

    text = " ".join(found.values())

    assert PSEUDONYM.findall(text) == [*found.values()]


def test_pseudonyms_show_no_part_of_a_word_except_small_numbers() -> None:
    found = pseudonyms(["team-83472", "worker-0", "worker-1", "worker-10", "ip-10-42-7-19"])

    assert found == {
        "ip-10-42-7-19": "n0x11",
        "team-83472": "n1x11111",
        "worker-0": "n2x0",
        "worker-1": "n2x1",
        "worker-10": "n2x10",
    }


def test_pseudonyms_are_sorted_around_words_that_stay() -> None:
    found = pseudonyms(["apple", "pear"], kept=["default"])

    assert found["apple"] < "default" < found["pear"]
    assert between("cpu", ["cpuset"]) == "cpu."
