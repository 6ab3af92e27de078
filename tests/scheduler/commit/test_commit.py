"""Committed plans as BindRequests: names, parts, owners, and pods that share a request."""

from collections.abc import Sequence
from typing import Any

import pytest

from bindery.api.names import (
    NODE_POOL_LABEL,
    POD_NAME_LABEL,
    SELECTED_NODE_LABEL,
    STATEMENT_LABEL,
)
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import BindRequestDraft
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    add,
    as_created,
    engine_with,
    gang,
    modify,
    node,
    plan,
    pod,
    queue,
)


def drafts_of(*items: Any, **fields: Any) -> list[StatementDraft]:
    return list(engine_with(node("n", 64), *items, **fields).cycle())


def sizes(drafts: Sequence[StatementDraft]) -> list[int]:
    return [len(draft.spec.pods) for draft in drafts]


def test_a_gang_is_one_request_named_after_it_and_owned_by_it() -> None:
    (draft,) = list(engine_with(node("n"), *gang("g", 3)).cycle(fencing_token=7))

    assert BindRequestDraft((draft,)).to_object() == {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "BindRequest",
        "metadata": {
            "name": "g-uid-grou-1",
            "namespace": NAMESPACE,
            "labels": {STATEMENT_LABEL: "uid-group-g-1.7"},
            "ownerReferences": [
                {
                    "apiVersion": "scheduling.bindery.dev/v1alpha1",
                    "kind": "PodGroup",
                    "name": "g",
                    "uid": "uid-group-g",
                }
            ],
        },
        "spec": {
            "statements": [
                {
                    "id": "uid-group-g-1.7",
                    "podGroup": {"name": "g", "uid": "uid-group-g"},
                    "queue": "default",
                    "pods": [
                        {"podName": f"g-{i}", "podUID": f"uid-g-{i}", "selectedNode": "n"}
                        for i in range(3)
                    ],
                }
            ],
            "summary": {"gangs": "g", "pods": 3, "nodes": "n"},
            "fencingToken": 7,
        },
    }


def test_the_request_of_a_single_pod_has_its_name_owner_and_label() -> None:
    (draft,) = drafts_of(pod("p", gpu=0))

    assert draft.name == "p-uid-p-1"
    assert (draft.owner.kind, draft.owner.name, draft.owner.uid) == ("Pod", "p", "uid-p")
    assert draft.labels == {
        STATEMENT_LABEL: "uid-p-1",
        POD_NAME_LABEL: "p",
        SELECTED_NODE_LABEL: "n",
    }
    assert draft.spec.pod_group is None
    assert draft.spec.min_bound is None


def test_a_request_marks_the_pods_that_get_mig_instances() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    engine = engine_with(node("n", more={mig: 2}), pod("p", more={mig: 1}))
    (draft,) = list(engine.cycle())

    assert draft.spec.pods[0].received_resource_type == "MigInstance"


def test_pods_of_different_queues_do_not_share_a_request() -> None:
    pods = [pod(f"p{i}", queue="ab"[i % 2]) for i in range(6)]
    drafts = drafts_of(queue("a"), queue("b"), *pods, bind_request={"merge_above": 1})

    assert sorted((draft.spec.queue, len(draft.spec.pods)) for draft in drafts) == [
        ("a", 3),
        ("b", 3),
    ]


def test_a_request_has_the_number_of_gpus_of_each_pod() -> None:
    engine = engine_with(node("n", gpu=8), *gang("g", 2, gpu=3))
    (draft,) = engine.cycle()

    assert [p.received_gpu and p.received_gpu.count for p in draft.spec.pods] == [3, 3]


@pytest.mark.parametrize(
    ("size", "max_pods", "parts"),
    [(6, 500, [6]), (6, 6, [6]), (6, 4, [4, 2]), (6, 3, [3, 3]), (3, 1, [1, 1, 1])],
)
def test_a_gang_above_the_maximum_pods_of_a_request_is_split(
    size: int, max_pods: int, parts: list[int]
) -> None:
    drafts = drafts_of(*gang("g", size), bind_request={"max_pods": max_pods})

    assert sizes(drafts) == parts
    assert {d.spec.id for d in drafts} == {"uid-group-g-1"}
    assert [d.spec.part for d in drafts] == list(range(len(parts)))
    assert {d.spec.parts for d in drafts} == {len(parts)}
    assert {d.spec.min_bound for d in drafts} == {None}
    assert len({d.name for d in drafts}) == len(parts)


@pytest.mark.parametrize(
    ("count", "merge_above", "max_pods", "expected"),
    [
        (4, 4, 500, [1, 1, 1, 1]),
        (5, 4, 500, [5]),
        (1, 0, 500, [1]),
        (7, 4, 6, [6, 1]),
        (12, 4, 6, [6, 6]),
        (5, 4, 1, [1, 1, 1, 1, 1]),
        (3, 0, 1, [1, 1, 1]),
    ],
)
def test_single_pods_are_merged_when_there_are_many(
    count: int, merge_above: int, max_pods: int, expected: list[int]
) -> None:
    drafts = drafts_of(
        *(pod(f"p-{i}") for i in range(count)),
        bind_request={"max_pods": max_pods, "merge_above": merge_above},
    )

    assert sizes(drafts) == expected
    for draft in drafts:
        is_merged = len(draft.spec.pods) > merge_above and max_pods > 1
        assert draft.spec.min_bound == (0 if is_merged else None)
        assert draft.owner.kind == ("" if is_merged else "Pod")
        assert ("ownerReferences" in draft.metadata()) is not is_merged


def test_pods_of_two_namespaces_or_gangs_are_not_merged() -> None:
    drafts = drafts_of(
        *(pod(f"a-{i}") for i in range(3)),
        *(pod(f"b-{i}", namespace="other") for i in range(3)),
        *gang("g", 4, 1),
        bind_request={"merge_above": 1},
    )

    by_kind = {(d.namespace, d.spec.pod_group.name if d.spec.pod_group else "") for d in drafts}
    assert by_kind == {(NAMESPACE, ""), ("other", ""), (NAMESPACE, "g")}
    assert sorted(sizes(drafts)) == [3, 3, 4]
    assert {d.spec.min_bound for d in drafts} == {0}


def test_merged_extra_pods_still_belong_to_their_gang() -> None:
    first, extras = drafts_of(*gang("g", 7, 2), bind_request={"merge_above": 1})

    assert (sizes([first, extras]), first.spec.min_bound) == ([2, 5], None)
    assert extras.spec.min_bound == 0
    assert (extras.owner.kind, extras.owner.name) == ("PodGroup", "g")
    assert extras.name == "g-uid-grou-2"


def test_a_name_is_never_used_again_for_one_gang() -> None:
    engine = engine_with(node("n"), *gang("g", 2))
    (first,) = engine.cycle()
    engine.refused(first)
    (second,) = engine.cycle()
    add(engine.cluster, as_created(second))
    modify(engine.cluster, *(pod(f"g-{i}", group="g", on="n") for i in range(2)))
    add(engine.cluster, pod("g-2", group="g"))
    (third,) = engine.cycle()

    assert [d.name for d in (first, second, third)] == [f"g-uid-grou-{i}" for i in (1, 2, 3)]


def test_a_new_scheduler_continues_the_numbers_of_existing_requests() -> None:
    (draft,) = engine_with(node("n"), *gang("g", 1)).cycle()
    new = engine_with(node("n"), *gang("g", 1), as_created(draft))

    assert plan(new) == {}
    assert new.cluster.commit_counts.next(draft.owner.uid) == 2


def test_two_schedulers_that_commit_one_gang_collide_on_the_name() -> None:
    one, other = (list(engine_with(node(n), *gang("g", 2)).cycle()) for n in ("n", "m"))

    assert [draft.key for draft in one] == [draft.key for draft in other]


def test_long_names_are_cut_to_the_length_that_the_api_server_accepts() -> None:
    name = ".".join(["a" * 62] * 4)
    (draft,) = drafts_of(pod(name, uid="0123456789"))

    assert len(draft.name) <= 253
    assert draft.name.endswith("-01234567-1")
    assert len(draft.labels[POD_NAME_LABEL]) <= 63
    assert draft.labels[POD_NAME_LABEL][-1].isalnum()


def test_requests_of_a_pool_carry_its_label() -> None:
    label = {NODE_POOL_LABEL: "blue"}
    engine = engine_with(
        node("n", labels=label), pod("p", labels=label), pod("q"), node_pool="blue"
    )
    (draft,) = engine.cycle()

    assert [p.pod_name for p in draft.spec.pods] == ["p"]
    assert draft.labels[NODE_POOL_LABEL] == "blue"
