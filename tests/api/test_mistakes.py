"""Unknown keys that resemble Bindery's keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api import podkeys
from bindery.api.mistakes import mistaken_keys

OURS = "scheduling.bindery.dev/"


@pytest.mark.parametrize(
    ("annotations", "labels", "problem"),
    [
        ([f"{OURS}queue"], [], f"annotation {OURS}queue has no effect: it must be a label"),
        (
            [],
            [f"{OURS}pod-group"],
            f"label {OURS}pod-group has no effect: it must be an annotation",
        ),
        ([f"{OURS}podgroup"], [], f"did you mean the annotation {OURS}pod-group?"),
        ([f"{OURS}pod_group"], [], f"did you mean the annotation {OURS}pod-group?"),
        ([f"{OURS}pod-gruop"], [], f"did you mean the annotation {OURS}pod-group?"),
        ([], [f"{OURS}podGroup"], f"did you mean the annotation {OURS}pod-group?"),
        ([], [f"{OURS}queues"], f"did you mean the label {OURS}queue?"),
        ([], [f"{OURS}preemptible"], "it must be an annotation"),
        ([f"{OURS}node-pool"], [], "it must be a label"),
        ([f"{OURS}colour"], [], f"annotation {OURS}colour has no effect: it is not known"),
        (["bindery.dev/pod-group"], [], f"did you mean the annotation {OURS}pod-group?"),
        ([], ["shceduling.bindery.dev/queue"], f"did you mean the label {OURS}queue?"),
    ],
)
def test_an_unknown_key_is_reported_with_the_most_similar_key(
    annotations: list[str], labels: list[str], problem: str
) -> None:
    (found,) = mistaken_keys(dict.fromkeys(annotations, "x"), dict.fromkeys(labels, "x"))

    assert problem in found


@pytest.mark.parametrize(
    "key",
    ["hollow.bindery.dev/run-seconds", "bindery.dev/test", "queue", "example.com/pod-group", "app"],
)
def test_keys_of_other_tools_are_ignored(key: str) -> None:
    assert mistaken_keys({key: "x"}, {key: "x"}) == []


def test_known_keys_are_no_mistakes() -> None:
    annotations = dict.fromkeys(podkeys.known_annotations(), "x")
    labels = dict.fromkeys(podkeys.known_labels(), "x")

    assert mistaken_keys(annotations, labels) == []


@given(st.dictionaries(st.text(max_size=12).map(lambda text: f"{OURS}{text}"), st.text(max_size=3)))
def test_any_other_key_of_the_api_group_is_reported(keys: dict[str, str]) -> None:
    unknown = keys.keys() - podkeys.known_annotations()

    assert len(mistaken_keys(keys, {})) == len(unknown)
