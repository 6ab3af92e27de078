"""The walk to the root owner, and settings from labels and annotations on the way."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bindery.api import names
from bindery.grouper.table import (
    Group,
    GroupPlan,
    PodFacts,
    ProblemReason,
    Reference,
    Surroundings,
    load,
    plan,
    pod_facts,
    settings,
)
from bindery.grouper.table.walk import link_of

TABLE = load()
QUEUE = names.QUEUE_LABEL
NO_META: Mapping[str, str] = {}


def job(name: str = "train", spec: Mapping[str, Any] | None = None, **metadata: Any) -> Any:
    found = {"name": name, "namespace": "default", "uid": f"{name}-uid", **metadata}
    spec = {"parallelism": 2, "completions": 2} if spec is None else spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": found, "spec": spec}


def cron_job(**metadata: Any) -> Any:
    found = {"name": "cron", "namespace": "default", "uid": "cron-uid", **metadata}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": found}


def owned(item: Any, owner: Any) -> Any:
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    item["metadata"]["ownerReferences"] = [reference]
    return item


def pods_of(owner: Any, count: int = 2, **meta: Mapping[str, str]) -> list[PodFacts]:
    at = owner["metadata"]
    controller = Reference(owner["apiVersion"], owner["kind"], at["name"], at["uid"], "default")
    labels, annotations = meta.get("labels", NO_META), meta.get("annotations", NO_META)
    return [
        PodFacts(f"pod-{i}", f"{at['name']}-{i}", "default", labels, annotations, controller)
        for i in range(count)
    ]


def planned(pods: list[PodFacts], *owners: Any, **around: Any) -> GroupPlan:
    by_uid = {item["metadata"]["uid"]: item for item in owners}
    return plan(by_uid, pods, TABLE, Surroundings(**around))


def only(found: GroupPlan) -> Group:
    (group,) = found.groups
    return group


def reasons(found: GroupPlan) -> list[tuple[str, str]]:
    return [(str(each.object), each.reason.value) for each in found.problems]


def test_the_podgroup_is_in_the_node_pool_of_its_pods_not_of_their_owner() -> None:
    key = names.NODE_POOL_LABEL
    labelled, plain = job(labels={key: "a100"}), job()

    without = planned(pods_of(labelled), labelled)
    other = planned(pods_of(labelled, labels={key: "h100"}), labelled)
    same = planned(pods_of(labelled, labels={key: "a100"}), labelled)
    own = planned(pods_of(plain, labels={key: "a100"}), plain)
    annotated = planned(pods_of(plain, annotations={key: "a100"}), plain)

    pools = [only(each).labels.get(key) for each in (without, other, same, own, annotated)]
    assert pools == [None, "h100", "a100", "a100", None]
    (problem,) = without.problems
    assert (str(problem.object), problem.reason) == ("Job/train", ProblemReason.INVALID_VALUE)
    assert problem.message == f"{key}: 'a100' is ignored: it must be a label of the pod template"
    assert reasons(other) == [("Job/train", "InvalidValue")]
    assert reasons(same) == reasons(own) == []


def test_the_node_pool_label_of_an_owner_is_not_used_without_pods_or_templates() -> None:
    owner = link_of(job(labels={names.NODE_POOL_LABEL: "a100"}))

    found = settings.node_pool((owner,))

    assert found.value is None
    assert [each.reason for each in found.problems] == [ProblemReason.INVALID_VALUE]


def test_the_value_nearest_to_the_pod_is_used_and_its_source_is_named() -> None:
    cron = cron_job(labels={QUEUE: "far"}, annotations={names.PREEMPTIBLE_ANNOTATION: "false"})
    child = owned(job(annotations={QUEUE: "near"}), cron)

    group = only(planned(pods_of(child), cron, child))

    assert (group.spec.queue, group.spec.preemptibility) == ("near", "NonPreemptible")
    assert group.sources["queue"] == "Job/train"
    assert group.sources["preemptibility"] == "CronJob/cron"

    near = planned(pods_of(child, labels={QUEUE: "nearest"}), cron, child)
    assert only(near).spec.queue == "nearest"
    assert only(near).sources["queue"] == "Job/train (pod template)"


def test_a_key_of_bindery_precedes_a_key_of_another_scheduler_on_the_same_object() -> None:
    both = job(labels={"kai.scheduler/queue": "theirs"}, annotations={QUEUE: "ours"})
    theirs = job(labels={"kai.scheduler/queue": "theirs"})

    assert only(planned(pods_of(both), both)).spec.queue == "ours"
    assert only(planned(pods_of(theirs), theirs)).spec.queue == "theirs"


def test_removing_a_label_removes_its_effect() -> None:
    with_label, without = job(labels={QUEUE: "research"}), job()

    assert only(planned(pods_of(with_label), with_label)).spec.queue == "research"
    assert only(planned(pods_of(without), without)).spec == spec_of(without)


def spec_of(item: Any) -> Any:
    return only(planned(pods_of(item), item)).spec


def test_the_newest_pod_represents_the_template() -> None:
    old, new = pods_of(job())
    old = replace(old, created="2026-01-01T00:00:00Z", labels={QUEUE: "old"})
    new = replace(new, created="2026-01-02T00:00:00Z", labels={QUEUE: "new"})

    assert only(planned([new, old], job())).spec.queue == "new"


def test_the_namespace_sets_the_queue_if_no_other_object_does() -> None:
    found = planned(pods_of(job()), job(), namespace_labels={QUEUE: "team"})

    assert only(found).spec.queue == "team"
    assert only(found).sources["queue"] == "Namespace/default"


def test_the_priority_class_of_a_kind_is_used_if_it_exists_and_pods_have_none() -> None:
    pods = pods_of(job())
    classed = [replace(pod, priority_class="high") for pod in pods]

    exists = frozenset({"train", "high"})
    assert only(planned(pods, job(), priority_classes=exists)).spec.priority_class_name == "train"
    assert only(planned(pods, job(), priority_classes=frozenset())).spec.priority_class_name is None
    assert only(planned(classed, job(), priority_classes=exists)).spec.priority_class_name is None


@pytest.mark.parametrize("known", [frozenset({"high"}), frozenset()])
def test_the_priority_class_of_kueue_is_used_if_it_exists(known: frozenset[str]) -> None:
    asking = job(labels={"kueue.x-k8s.io/priority-class": "high"})

    group = only(planned(pods_of(asking), asking, priority_classes=known))

    assert group.spec.priority_class_name == ("high" if known else None)


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        (names.EXPECTED_RUNTIME_ANNOTATION, "60", "expected_runtime_seconds", 60),
        (names.RUN_TIME_LIMIT_KEY, "3600", "run_time_limit_seconds", 3600),
        (names.PREEMPTION_DELAY_KEY, "30", "preemption_delay_seconds", 30),
        ("kai.scheduler/preemption-delay", "1m30s", "preemption_delay_seconds", 90),
        (names.STALENESS_GRACE_PERIOD_KEY, "-1", "staleness_grace_period_seconds", -1),
        ("kai.scheduler/staleness-grace-period", "2m", "staleness_grace_period_seconds", 120),
        (names.STAGE_TIMEOUT_KEY, "0", "stage_timeout_seconds", 0),
        (names.DISRUPTION_MODE_KEY, "Group", "disruption_mode", "Group"),
        (names.PREEMPTIBLE_ANNOTATION, "true", "preemptibility", "Preemptible"),
        ("kai.scheduler/preemptibility", "non-preemptible", "preemptibility", "NonPreemptible"),
    ],
)
def test_each_annotation_sets_its_field_of_the_pod_group(
    key: str, text: str, field: str, value: object
) -> None:
    asking = job(annotations={key: text})

    group = only(planned(pods_of(asking), asking))

    assert getattr(group.spec, field) == value
    assert list(group.sources.values()).count("Job/train") == 2


@pytest.mark.parametrize(
    ("key", "name"), [(names.PRIORITY_CLASS_KEY, "gone"), ("priorityClassName", None)]
)
def test_a_gang_with_a_missing_priority_class_waits_and_reports_it(
    key: str, name: str | None
) -> None:
    asking = job(annotations={key: "gone"})

    found = planned(pods_of(asking), asking, priority_classes=frozenset({"high"}))

    assert only(found).spec.priority_class_name == name
    assert reasons(found) == [("Job/train", "InvalidValue")]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (names.MIN_MEMBER_KEY, "many", "it must be a whole number"),
        (names.MIN_MEMBER_KEY, "-1", "it must be from 0 to 100000"),
        (names.EXPECTED_RUNTIME_ANNOTATION, "0", "it must be a positive number of seconds"),
        (names.EXPECTED_RUNTIME_ANNOTATION, "nan", "it must be a positive number of seconds"),
        (names.EXPECTED_RUNTIME_ANNOTATION, "long", "it must be a number of seconds"),
        (names.PREEMPTIBLE_ANNOTATION, "perhaps", "it must be true or false"),
        (names.SEGMENT_SIZE_KEY, "0", "it must be at least 1"),
        (names.PREEMPTION_DELAY_KEY, "-1", "it must not be negative"),
        (names.STALENESS_GRACE_PERIOD_KEY, "for ever", "or a duration such as 1h30m"),
        (names.DISRUPTION_MODE_KEY, "Pods", "it must be Pod or Group"),
        (QUEUE, " ", "it is empty"),
    ],
)
def test_an_invalid_value_is_ignored_and_reported_at_its_object(
    key: str, value: str, why: str
) -> None:
    asking = job(annotations={key: value})

    found = planned(pods_of(asking), asking)

    assert only(found).spec == spec_of(job())
    assert reasons(found) == [("Job/train", "InvalidValue")]
    assert key in found.problems[0].message
    assert found.problems[0].message.endswith(why)


def test_a_minimum_above_the_number_of_pods_is_kept_and_reported() -> None:
    asking = job(annotations={names.MIN_MEMBER_KEY: "5"})

    found = planned(pods_of(asking), asking)

    assert only(found).spec.min_member == 5
    assert reasons(found) == [("Job/train", "MinimumTooHigh")]
    assert "at most 2 pods exist" in found.problems[0].message


@pytest.mark.parametrize(
    ("spec", "status", "succeeded", "minimum"),
    [
        ({"parallelism": 4, "completions": 4}, {}, 0, 4),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 3}, 3, 4),  # 3 + the last one
        ({"parallelism": 4, "completions": 4}, {"succeeded": 3}, 0, 1),  # they were removed
        ({"parallelism": 4, "completions": 10}, {"succeeded": 9}, 0, 1),
        ({"parallelism": 4, "completions": 10}, {"succeeded": 2}, 2, 4),
        ({"parallelism": 8, "completions": 3}, {}, 0, 3),
        ({"parallelism": 8}, {"succeeded": 1}, 1, 8),
        ({}, {}, 0, 1),
        ({"parallelism": 6, "completions": 6}, {"failedIndexes": "1,4-5"}, 0, 3),
        ({"parallelism": 0, "completions": 6}, {}, 0, 0),
    ],
)
def test_a_job_requires_its_remaining_pods(
    spec: Any, status: Any, succeeded: int, minimum: int
) -> None:
    item = {**job(spec=spec), "status": status}
    pods = pods_of(item, succeeded + 1)
    pods = [*(replace(pod, phase="Succeeded") for pod in pods[1:]), pods[0]]

    assert only(planned(pods, item)).spec.min_member == minimum


def test_an_annotated_minimum_shrinks_with_the_last_pods() -> None:
    item = job(spec={"parallelism": 4, "completions": 10}, annotations={names.MIN_MEMBER_KEY: "3"})

    tail = {**item, "status": {"succeeded": 9}}
    assert only(planned(pods_of(item), item)).spec.min_member == 3
    assert only(planned(pods_of(tail, 1), tail)).spec.min_member == 1
    assert planned(pods_of(tail, 1), tail).problems == ()


def test_the_owner_with_controller_true_is_followed() -> None:
    pod = {
        "metadata": {
            "name": "p",
            "uid": "p-uid",
            "namespace": "default",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c-uid"},
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "train",
                    "uid": "train-uid",
                    "controller": True,
                },
            ],
        }
    }

    assert only(planned([pod_facts(pod)], job())).owner.name == "train"


@pytest.mark.parametrize("key", [names.SKIP_GROUPER_KEY, "kai.scheduler/skip-podgrouper"])
def test_workloads_with_a_skip_annotation_are_not_grouped(key: str) -> None:
    skipping = job(annotations={key: "true"})

    assert planned(pods_of(job(), labels={key: "true"}), job()) == GroupPlan()
    independent = only(planned(pods_of(skipping), skipping))
    assert independent.spec.min_member == 0
    assert [member.controller for member in independent.spec.members] == ["train-uid"]


def test_pods_that_name_their_group_are_not_grouped() -> None:
    named = pods_of(job(), annotations={names.POD_GROUP_ANNOTATION: "mine"})
    upstream = [replace(pod, scheduling_group="theirs") for pod in pods_of(job())]

    assert planned(named, job()) == GroupPlan()
    assert planned(upstream, job()) == GroupPlan()


def test_an_unknown_owner_is_requested_and_its_pods_wait() -> None:
    found = planned(pods_of(job()))

    assert found.groups == ()
    assert [(each.kind, each.name, each.uid) for each in found.wanted] == [
        ("Job", "train", "train-uid")
    ]


def training() -> Any:
    found = {"name": "big", "namespace": "default", "uid": "big-uid"}
    return {"apiVersion": "example.com/v1", "kind": "Training", "metadata": found}


def test_pods_of_an_unreadable_owner_are_one_group_with_one_event() -> None:
    found = planned(pods_of(training(), 3), unreadable={"big-uid": "it is forbidden"})

    group = only(found)
    assert str(group.owner) == "Training/big"
    assert group.pods == ("pod-0", "pod-1", "pod-2")
    assert group.spec.min_member == 1
    assert [member.controller for member in group.spec.members] == ["big-uid"]
    assert reasons(found) == [("Training/big", "OwnerNotReadable")]
    assert "it is forbidden" in found.problems[0].message


def test_the_row_of_a_kind_is_not_used_for_an_unreadable_object() -> None:
    """Its paths lead through fields that are unknown."""
    found = planned(pods_of(job(), 3), unreadable={"train-uid": "it is forbidden"})

    assert only(found).spec.min_member == 1
    assert reasons(found) == [("Job/train", "OwnerNotReadable")]


def test_a_minimum_in_the_template_is_used_below_an_unreadable_owner() -> None:
    pods = pods_of(training(), 3, annotations={names.MIN_MEMBER_KEY: "3"})

    group = only(planned(pods, unreadable={"big-uid": "it is forbidden"}))

    assert group.spec.min_member == 3
    assert group.sources["minMember"] == "Training/big (pod template)"


def test_workloads_below_an_unreadable_owner_are_separate_groups_with_one_event() -> None:
    children = [owned(job(name), cron_job()) for name in ("a", "b")]
    pods = [
        replace(pod, uid=f"{item['metadata']['name']}-{pod.uid}")
        for item in children
        for pod in pods_of(item)
    ]

    found = planned(pods, *children, unreadable={"cron-uid": "it is forbidden"})

    assert [str(group.owner) for group in found.groups] == ["Job/a", "Job/b"]
    assert [group.spec.min_member for group in found.groups] == [2, 2]
    assert reasons(found) == [("CronJob/cron", "OwnerNotReadable")]
    assert "CronJob/cron cannot be read: it is forbidden" in found.problems[0].message


def test_owners_on_a_cycle_end_the_walk() -> None:
    first, second = job("a"), job("b")
    owned(first, second)
    owned(second, first)

    found = planned(pods_of(first), first, second)

    assert len(found.groups) == 1
    assert "form a cycle" in found.problems[0].message


def stateful_set(minimum: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "db",
            "namespace": "default",
            "uid": "db-uid",
            "annotations": {names.MIN_MEMBER_KEY: str(minimum)},
        },
        "spec": {"replicas": 3, **spec},
    }


def test_pods_that_a_stateful_set_creates_in_order_are_stages() -> None:
    in_order = stateful_set(3, ordinals={"start": 5})
    parallel = stateful_set(3, podManagementPolicy="Parallel")

    spec = only(planned(pods_of(in_order), in_order)).spec
    assert [part.name for part in spec.sub_groups] == ["pod-5", "pod-6", "pod-7", "others"]
    assert spec.min_member == 1
    assert only(planned(pods_of(parallel), parallel)).spec.min_member == 3


@pytest.mark.parametrize(("minimum", "replicas"), [(4, 3), (200, 200)])
def test_a_minimum_unreachable_by_an_ordered_stateful_set_is_reported(
    minimum: int, replicas: int
) -> None:
    item = stateful_set(minimum, replicas=replicas)

    assert reasons(planned(pods_of(item), item)) == [("StatefulSet/db", "MinimumTooHigh")]


def leader_worker_set(template: Any) -> Any:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "default", "uid": "serve-uid"},
        "spec": {"leaderWorkerTemplate": {"size": 4, **template}},
    }


def test_a_minimum_in_the_template_of_a_role_applies_to_that_role() -> None:
    annotated = {"metadata": {"annotations": {names.MIN_MEMBER_KEY: "2"}}}
    own = leader_worker_set({"leaderTemplate": {"spec": {}}, "workerTemplate": annotated})
    shared = leader_worker_set({"workerTemplate": annotated})
    staged = {**shared, "spec": {**shared["spec"], "startupPolicy": "LeaderReady"}}
    leader = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    worker = {"leaderworkerset.sigs.k8s.io/name": "serve"}

    of_role = only(planned(pods_of(own, 1, labels=leader), own))
    by_pods = [
        *pods_of(shared, 1, labels=leader, annotations={names.MIN_MEMBER_KEY: "2"}),
        *(
            replace(pod, uid="w", name="w")
            for pod in pods_of(shared, 1, labels=worker, annotations={names.MIN_MEMBER_KEY: "2"})
        ),
    ]
    of_all, of_stages = only(planned(by_pods, shared)), only(planned(by_pods, staged))

    assert [part.min_member for part in of_role.spec.sub_groups] == [1, 2]
    assert of_all.spec.sub_groups == []
    assert [part.min_member for part in of_stages.spec.sub_groups] == [1, 1]
    assert (of_role.spec.min_member, of_all.spec.min_member) == (3, 2)


def test_parts_with_different_queues_are_one_gang_in_the_first_queue() -> None:
    item = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "pt", "namespace": "default", "uid": "pt-uid"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"template": {"metadata": {"labels": {QUEUE: "first"}}}},
                "Worker": {"template": {"metadata": {"labels": {QUEUE: "second"}}}},
            }
        },
    }
    found = planned(pods_of(item, 1), item)

    assert only(found).spec.queue == "first"
    assert reasons(found) == [("PyTorchJob/pt", ProblemReason.PODS_DISAGREE.value)]
    assert "different values of queue: first, second" in found.problems[0].message


def test_problems_of_all_steps_are_listed_once_in_order_with_the_source_of_each_field() -> None:
    def role(name: str, queue: str, minimum: str) -> Any:
        metadata = {"labels": {QUEUE: queue}, "annotations": {names.MIN_MEMBER_KEY: minimum}}
        spec = {"parallelism": 2, "completions": 2, "template": {"metadata": metadata}}
        return {"name": name, "template": {"spec": spec}}

    annotations = {
        names.SEGMENT_SIZE_KEY: "2",
        names.PREEMPTIBLE_ANNOTATION: "perhaps",
        names.STAGE_TIMEOUT_KEY: "60",
    }
    item = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "set",
            "namespace": "default",
            "uid": "set-uid",
            "annotations": annotations,
        },
        "spec": {"replicatedJobs": [role("a", "first", "9"), role("b", "second", "many")]},
    }

    found = planned(pods_of(item, 1), item)

    assert [(each.reason.value, each.message.partition(" ")[0]) for each in found.problems] == [
        ("InvalidValue", f"{names.MIN_MEMBER_KEY}:"),
        ("InvalidValue", f"{names.PREEMPTIBLE_ANNOTATION}:"),
        ("InvalidValue", names.SEGMENT_SIZE_KEY),
        ("MinimumTooHigh", "the"),
        ("PodsDisagree", "parts"),
    ]
    assert only(found).sources == {
        "subGroups[a.0].minMember": "JobSet/set (pod template)",
        "minMember": "JobSet/set",
        "queue": "JobSet/set (pod template)",
        "stageTimeoutSeconds": "JobSet/set",
    }


def test_segments_without_a_topology_level_are_reported() -> None:
    item = job(annotations={names.SEGMENT_SIZE_KEY: "2"})

    found = planned(pods_of(item), item)

    assert only(found).spec.topology is None
    assert reasons(found) == [("Job/train", "InvalidValue")]


def test_a_missing_field_required_by_a_row_is_reported_at_the_object() -> None:
    item = {
        "apiVersion": "amlarc.azureml.com/v1alpha1",
        "kind": "AmlJob",
        "metadata": {"name": "aml", "namespace": "default", "uid": "aml-uid"},
        "spec": {},
    }
    found = planned(pods_of(item), item)

    assert only(found).spec.min_member == 1
    assert reasons(found) == [("AmlJob/aml", "PathNotFound")]
    assert "AZUREML_NODE_COUNT" in found.problems[0].message


def test_any_object_name_becomes_a_valid_pod_group_name() -> None:
    long, odd = job("x" * 253), job("Ünïcode.Name_")
    odd["metadata"]["uid"] = "1234567890"

    assert len(only(planned(pods_of(long), long)).name) < 240
    assert only(planned(pods_of(odd), odd)).name.isascii()


def test_the_user_of_any_owner_becomes_the_label_of_the_pod_group() -> None:
    cron = cron_job(labels={names.USER_KEY: "ann"})
    child = owned(job(), cron)

    group = only(planned(pods_of(child), cron, child))

    assert group.labels == {names.USER_KEY: "ann"}
    near = only(planned(pods_of(child, labels={names.USER_KEY: "bob"}), cron, child))
    assert near.labels == {names.USER_KEY: "bob"}


def test_the_nearest_provisioning_setting_is_copied_to_the_pod_group() -> None:
    key = names.PROVISIONING_REQUEST_ANNOTATION
    cron = cron_job(annotations={key: "true"})
    child = owned(job(), cron)

    group = only(planned(pods_of(child), cron, child))

    assert group.annotations == {key: "true"}
    assert group.to_object()["metadata"]["annotations"][key] == "true"
    near = only(planned(pods_of(child, annotations={key: "false"}), cron, child))
    assert near.annotations == {key: "false"}
    silent = only(planned(pods_of(job()), job()))
    assert key not in silent.to_object()["metadata"]["annotations"]


def test_a_provisioning_setting_other_than_true_or_false_is_reported_at_its_object() -> None:
    owner = job(annotations={names.PROVISIONING_REQUEST_ANNOTATION: "yes"})

    found = planned(pods_of(owner), owner)

    assert only(found).annotations == {}
    assert reasons(found) == [("Job/train", ProblemReason.INVALID_VALUE.value)]


@pytest.mark.parametrize("user", ["ann smith", "", "a" * 64, "ann@example.com"])
def test_a_user_that_is_no_valid_label_value_is_reported_at_its_object(user: str) -> None:
    owner = job(annotations={names.USER_KEY: user})

    found = planned(pods_of(owner), owner)

    assert only(found).labels == {}
    assert reasons(found) == [("Job/train", ProblemReason.INVALID_VALUE.value)]
