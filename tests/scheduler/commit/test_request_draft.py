"""The BindRequest of one Statement or of several."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bindery.api.exclusive import PLUGIN_DATA as EXCLUSIVE
from bindery.api.keptroom import PLUGIN_DATA as KEPT_ROOM
from bindery.api.names import (
    NODE_POOL_LABEL,
    ROLL_BACK_FINALIZER,
    SELECTED_NODE_LABEL,
    STATEMENT_LABEL,
)
from bindery.api.numaplacement import PLUGIN as NUMA
from bindery.kube.objects.bindrequests import BindRequest, BindRequestSpec
from bindery.kube.objects.models import validated
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import BindRequestDraft, as_stored, content_of
from tests.scheduler.drafted import draft

GANG = draft("trainer", pods=2, nodes=("n1", "n2"), labels={NODE_POOL_LABEL: "gpu"}, token=7)
OTHER = draft(
    "evaluator", pods=3, nodes=("n2", "n3", "n4"), labels={NODE_POOL_LABEL: "gpu"}, token=7
)
EXTRA = draft(
    "extra",
    gang="trainer",
    after="trainer-1",
    labels={NODE_POOL_LABEL: "gpu", SELECTED_NODE_LABEL: "node"},
    token=7,
)
SINGLES = draft("singles", gang="", owner_kind="", pods=4, min_bound=0, token=7)


def metadata_of(*statements: StatementDraft) -> dict[str, Any]:
    metadata: dict[str, Any] = object_of(*statements)["metadata"]
    return metadata


def object_of(*statements: StatementDraft) -> dict[str, Any]:
    made: dict[str, Any] = BindRequestDraft(statements).to_object()
    validated(BindRequestSpec, made["spec"])
    return made


def read(made: dict[str, Any]) -> BindRequest:
    return msgspec.json.decode(msgspec.json.encode(made), type=BindRequest)


def test_a_statement_alone_has_its_own_metadata() -> None:
    metadata = metadata_of(GANG)

    assert metadata == GANG.metadata()
    assert metadata["labels"][STATEMENT_LABEL] == "trainer-1"
    assert [owner["name"] for owner in metadata["ownerReferences"]] == ["trainer"]


def test_a_statement_alone_is_read_as_it_was_drafted() -> None:
    for each in (GANG, OTHER, EXTRA, SINGLES):
        (found,) = read(object_of(each)).each()

        assert found == as_stored(each)
        assert (found.key, found.fencing_token) == (each.key, 7)
        assert content_of([found]) == BindRequestDraft((each,)).content
        assert found.siblings == (each.spec.id,)


def test_a_shared_request_has_its_statements_and_their_common_fields() -> None:
    spec = object_of(GANG, OTHER)["spec"]

    assert set(spec) == {"statements", "summary", "fencingToken"}
    assert spec["fencingToken"] == 7
    assert [each["id"] for each in spec["statements"]] == ["trainer-1", "evaluator-1"]


def test_a_shared_request_is_read_as_its_statements() -> None:
    found = read(object_of(GANG, OTHER, EXTRA)).each()

    assert content_of(found) == BindRequestDraft((GANG, OTHER, EXTRA)).content
    assert [each.fencing_token for each in found] == [7, 7, 7]
    assert found[2].spec.after == "trainer-1"
    assert {each.siblings for each in found} == {("trainer-1", "evaluator-1", "extra-1")}


def test_a_shared_request_has_the_first_statements_name_and_the_common_labels() -> None:
    metadata = metadata_of(GANG, OTHER, EXTRA)

    assert metadata["name"] == GANG.name
    assert metadata["labels"] == {NODE_POOL_LABEL: "gpu"}


def test_every_podgroup_in_a_shared_request_owns_it_once() -> None:
    owners = metadata_of(GANG, OTHER, EXTRA)["ownerReferences"]

    assert [(owner["kind"], owner["name"]) for owner in owners] == [
        ("PodGroup", "trainer"),
        ("PodGroup", "evaluator"),
    ]


def test_a_shared_request_with_an_unowned_statement_has_no_owner() -> None:
    # When the owners are gone, the garbage collector would delete that Statement with the others.
    assert "ownerReferences" not in metadata_of(GANG, SINGLES)
    assert "ownerReferences" not in metadata_of(SINGLES)


def test_the_summary_of_a_shared_request_covers_all_statements() -> None:
    assert object_of(GANG, OTHER, EXTRA, SINGLES)["spec"]["summary"] == {
        "gangs": "trainer,evaluator",
        "pods": 10,
        "nodes": "n1,n2 +3",
    }


def test_the_annotations_of_a_shared_request_come_from_its_statements() -> None:
    one = draft("one", annotations={"key": "value"})
    two = draft("two", annotations={"key": "value"})

    assert metadata_of(one, two)["annotations"] == {"key": "value"}


def with_pod(found: StatementDraft, **fields: Any) -> StatementDraft:
    """Return the draft with changed fields of its last pod."""
    *others, last = found.spec.pods
    pods = [*others, msgspec.structs.replace(last, **fields)]
    return replace(found, spec=msgspec.structs.replace(found.spec, pods=pods))


@pytest.mark.parametrize(
    ("fields", "is_held"),
    [
        ({}, False),
        ({"plugin_data": {NUMA: {}, KEPT_ROOM: {}, EXCLUSIVE: {}}}, False),
        ({"plugin_data": {NUMA: {}, "volumes": {}}}, True),
        ({"plugin_data": {"of-a-third-party": {}}}, True),
        ({"selected_gpu_groups": ["group"]}, True),
    ],
)
def test_a_request_stays_until_the_roll_back_if_the_binder_may_prepare_one_of_its_pods(
    fields: dict[str, Any], is_held: bool
) -> None:
    expected = [ROLL_BACK_FINALIZER] if is_held else None

    assert metadata_of(with_pod(GANG, **fields)).get("finalizers") == expected
    assert metadata_of(OTHER, with_pod(GANG, **fields)).get("finalizers") == expected
