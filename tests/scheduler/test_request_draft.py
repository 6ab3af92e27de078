"""The BindRequest that one Statement, or several, become."""

from typing import Any

import msgspec
from drafted import draft

from bindery.api.bindrequest import BindRequestSpec
from bindery.api.names import NODE_POOL_LABEL, SELECTED_NODE_LABEL, STATEMENT_LABEL
from bindery.kube.bindrequests import BindRequest
from bindery.scheduler.commit.requests import BindRequestDraft, content_of

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


def metadata_of(*statements: Any, is_old_form: bool = False) -> dict[str, Any]:
    return object_of(*statements, is_old_form=is_old_form)["metadata"]


def object_of(*statements: Any, is_old_form: bool = False) -> dict[str, Any]:
    made: Any = BindRequestDraft(statements, is_old_form).to_object()
    BindRequestSpec.model_validate(made["spec"])
    return made


def read(made: dict[str, Any]) -> BindRequest:
    return msgspec.json.decode(msgspec.json.encode(made), type=BindRequest)


def test_a_statement_alone_has_the_metadata_of_the_old_form() -> None:
    assert metadata_of(GANG) == metadata_of(GANG, is_old_form=True)
    assert metadata_of(GANG)["labels"][STATEMENT_LABEL] == "trainer-1"


def test_both_forms_of_a_statement_are_read_alike() -> None:
    for each in (GANG, OTHER, EXTRA, SINGLES):
        (new,) = read(object_of(each)).each()
        (old,) = read(object_of(each, is_old_form=True)).each()

        assert (new.key, new.spec, new.status) == (old.key, old.spec, old.status)
        assert content_of([new]) == BindRequestDraft((each,)).content
        assert new.siblings == (each.spec.statement.id,)
        assert old.siblings == ()


def test_the_old_form_uses_the_old_fields_alone() -> None:
    spec = object_of(GANG, is_old_form=True)["spec"]

    assert "statements" not in spec
    assert "withdrawn" not in spec
    assert [pod["podName"] for pod in spec["pods"]] == ["trainer-0", "trainer-1"]


def test_the_new_form_uses_no_field_of_the_old_one() -> None:
    spec = object_of(GANG, OTHER)["spec"]

    assert set(spec) <= {"statements", "summary", "backoffLimit", "fencingToken"}
    assert spec["fencingToken"] == 7
    assert [each["id"] for each in spec["statements"]] == ["trainer-1", "evaluator-1"]


def test_a_shared_request_is_read_as_its_statements() -> None:
    found = read(object_of(GANG, OTHER, EXTRA)).each()

    assert content_of(found) == BindRequestDraft((GANG, OTHER, EXTRA)).content
    assert [each.spec.fencing_token for each in found] == [7, 7, 7]
    assert found[2].spec.statement.after == "trainer-1"
    assert {each.siblings for each in found} == {("trainer-1", "evaluator-1", "extra-1")}


def test_it_has_the_name_of_its_first_statement_and_the_labels_that_all_share() -> None:
    metadata = metadata_of(GANG, OTHER, EXTRA)

    assert metadata["name"] == GANG.name
    assert metadata["labels"] == {NODE_POOL_LABEL: "gpu"}


def test_every_podgroup_in_it_owns_it_once() -> None:
    owners = metadata_of(GANG, OTHER, EXTRA)["ownerReferences"]

    assert [(owner["kind"], owner["name"]) for owner in owners] == [
        ("PodGroup", "trainer"),
        ("PodGroup", "evaluator"),
    ]


def test_with_a_statement_that_nobody_owns_it_has_no_owner() -> None:
    # When the owners are gone, the garbage collector would delete that Statement with the others.
    assert "ownerReferences" not in metadata_of(GANG, SINGLES)
    assert "ownerReferences" not in metadata_of(SINGLES)


def test_its_summary_is_about_all_statements() -> None:
    assert object_of(GANG, OTHER, EXTRA, SINGLES)["spec"]["summary"] == {
        "gangs": "trainer,evaluator",
        "pods": 10,
        "nodes": "n1,n2 +3",
    }


def test_its_annotations_are_those_of_its_statements() -> None:
    one = draft("one", annotations={"key": "value"})
    two = draft("two", annotations={"key": "value"})

    assert metadata_of(one, two)["annotations"] == {"key": "value"}
