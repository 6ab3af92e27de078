"""Gangs with labels and annotations of other schedulers' tools, and their PodGroups."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bindery.api import names
from bindery.grouper.marks.contracts import CONTRACTS, MarkedGang, contract_of, plan
from bindery.grouper.table.facts import PodFacts, Reference
from bindery.grouper.table.groups import GroupPlan, ProblemReason
from bindery.kube.objects.declaring import to_wire

CLIQUE = Reference("grove.io/v1alpha1", "PodClique", "simple-0-decode", "clique-1", "space")


def pod(name: str, controller: Reference | None = None, **marks: Mapping[str, str]) -> PodFacts:
    return PodFacts(
        uid=f"{name}-uid",
        name=name,
        namespace="space",
        labels=marks.get("labels", {}),
        annotations=marks.get("annotations", {}),
        controller=controller,
        created=f"2026-01-01T00:00:0{name[-1]}Z",
        scheduler_name="bindery",
    )


def planned(*pods: PodFacts, body: dict[str, Any] | None = None, **further: Any) -> GroupPlan:
    found = contract_of(pods[0])
    assert found is not None
    contract, name = found
    return plan(MarkedGang(contract, name, "space", pods, body, body is not None, **further))


def spec(made: GroupPlan) -> dict[str, Any]:
    (group,) = made.groups
    return dict(to_wire(group.spec))


# -- KAI-Scheduler's contract, as Grove writes it -------------------------------------------------


def grove_pod(name: str, clique: str) -> PodFacts:
    return pod(
        name,
        replace(CLIQUE, name=f"simple-0-{clique}", uid=f"{clique}-1"),
        annotations={"pod-group-name": "simple-0", "kai.scheduler/skip-podgrouper": "true"},
        labels={
            "app.kubernetes.io/managed-by": "grove-operator",
            "grove.io/podclique": f"simple-0-{clique}",
            "grove.io/podgang": "simple-0",
            "kai.scheduler/subgroup-name": f"simple-0-{clique}",
            "kai.scheduler/queue": "vision",
        },
    )


KAI_GROUP = {
    "apiVersion": "scheduling.run.ai/v2alpha2",
    "kind": "PodGroup",
    "metadata": {"namespace": "space", "name": "simple-0", "uid": "kai-1"},
    "spec": {
        "minMember": 3,
        "queue": "vision",
        "priorityClassName": "inference",
        "subGroups": [
            {"name": "simple-0-decode", "minMember": 2},
            {"name": "simple-0-prefill", "minMember": 1},
        ],
        "markUnschedulable": False,
    },
}
KAI_MEMBERS = [{"annotation": {"key": "pod-group-name", "value": "simple-0"}}]


def test_a_gang_from_an_object_of_kai_has_its_sub_groups() -> None:
    pods = [grove_pod("decode-0", "decode"), grove_pod("prefill-1", "prefill")]

    made = planned(*pods, body=KAI_GROUP)

    assert spec(made) == {
        "minMember": 3,
        "queue": "vision",
        "priorityClassName": "inference",
        "members": KAI_MEMBERS,
        "subGroups": [
            {
                "name": "simple-0-decode",
                "minMember": 2,
                "podLabels": {"kai.scheduler/subgroup-name": "simple-0-decode"},
            },
            {
                "name": "simple-0-prefill",
                "minMember": 1,
                "podLabels": {"kai.scheduler/subgroup-name": "simple-0-prefill"},
            },
        ],
    }
    (group,) = made.groups
    assert (group.name, group.owner.uid) == ("kai-simple-0", "kai-1")
    assert ["spec.markUnschedulable" in each.message for each in made.problems] == [True]


def test_a_gang_from_marks_of_kai_has_their_queue() -> None:
    made = planned(grove_pod("decode-0", "decode"), grove_pod("prefill-1", "prefill"))

    assert spec(made) == {"queue": "vision", "members": KAI_MEMBERS}


def test_pods_wait_for_the_marked_object_if_its_kind_is_installed() -> None:
    waiting = grove_pod("decode-0", "decode")
    gang = MarkedGang(CONTRACTS[0], "simple-0", "space", [waiting], None, is_kind_installed=True)

    made = plan(gang)

    assert made.groups == ()
    (problem,) = made.problems
    assert problem.reason is ProblemReason.GROUP_MISSING
    assert problem.object == waiting.reference
    assert "PodGroup simple-0 of scheduling.run.ai" in problem.message


def test_the_node_pool_of_kai_is_used() -> None:
    labels = {"kai.scheduler/node-pool": "a100"}

    (group,) = planned(pod("w-0", annotations={"pod-group-name": "g"}, labels=labels)).groups

    assert group.labels == {names.NODE_POOL_LABEL: "a100"}


def test_the_user_of_marked_pods_is_a_label_of_their_pod_group() -> None:
    labels = {names.USER_KEY: "ann"}

    (group,) = planned(pod("w-0", annotations={"pod-group-name": "g"}, labels=labels)).groups

    assert group.labels == {names.USER_KEY: "ann"}


def test_the_provisioning_setting_of_marked_pods_is_copied_to_their_pod_group() -> None:
    annotations = {"pod-group-name": "g", names.PROVISIONING_REQUEST_ANNOTATION: "true"}

    (group,) = planned(pod("w-0", annotations=annotations)).groups

    assert group.annotations == {names.PROVISIONING_REQUEST_ANNOTATION: "true"}


# -- Volcano's, as KubeRay and Volcano Jobs write it -----------------------------------------------


def volcano_pod(name: str, task: str = "", queue: str = "") -> PodFacts:
    annotations = {"scheduling.k8s.io/group-name": "ray-llama-pg"}
    if queue:
        annotations["scheduling.volcano.sh/queue-name"] = queue
    return pod(name, annotations=annotations, labels={"volcano.sh/task-spec": task} if task else {})


def volcano_group(**spec_: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"namespace": "space", "name": "ray-llama-pg", "uid": "volcano-1"},
        "spec": spec_,
    }


VOLCANO_MEMBERS = [
    {"annotation": {"key": "scheduling.k8s.io/group-name", "value": "ray-llama-pg"}},
    {"annotation": {"key": "scheduling.volcano.sh/group-name", "value": "ray-llama-pg"}},
]


def test_a_ray_cluster_marked_for_volcano_becomes_a_gang() -> None:
    body = volcano_group(minMember=4, queue="vision", minResources={"cpu": "4"})

    made = planned(volcano_pod("w-0"), volcano_pod("w-1"), body=body)

    assert spec(made) == {"minMember": 4, "queue": "vision", "members": VOLCANO_MEMBERS}
    assert ["spec.minResources" in each.message for each in made.problems] == [True]


def test_pods_of_leader_worker_sets_are_grouped_by_their_row_and_not_by_marks() -> None:
    labels = {"leaderworkerset.sigs.k8s.io/name": "llama"}

    assert contract_of(replace(volcano_pod("llama-0"), labels=labels)) is None


def test_the_tasks_of_a_volcano_job_are_sub_groups() -> None:
    body = volcano_group(minMember=3, minTaskMember={"master": 1, "worker": 2})

    made = spec(planned(volcano_pod("m-0", "master"), body=body))

    assert made["subGroups"] == [
        {"name": "master", "minMember": 1, "podLabels": {"volcano.sh/task-spec": "master"}},
        {"name": "worker", "minMember": 2, "podLabels": {"volcano.sh/task-spec": "worker"}},
    ]


def test_sub_groups_by_the_values_of_a_label_follow_the_pods() -> None:
    policy = {
        "name": "replica",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "matchLabelKeys": ["example.com/replica"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    body = volcano_group(minMember=2, subGroupPolicy=[policy])
    pods = [
        replace(volcano_pod(f"w-{index}"), labels={"example.com/replica": str(index // 2)})
        for index in range(4)
    ]

    made = spec(planned(*pods, body=body))

    assert made["subGroups"] == [
        {"name": "replica", "minSubGroup": 1},
        *(
            {
                "name": f"replica-{value}",
                "parent": "replica",
                "minMember": 2,
                "podLabels": {"example.com/replica": value},
                "topology": {"hyperNodeTier": 1},
            }
            for value in ("0", "1")
        ),
    ]


def test_annotations_are_used_without_an_object_of_volcano() -> None:
    marked = volcano_pod("w-0", queue="vision")
    annotations = {**marked.annotations, "scheduling.volcano.sh/group-min-member": "2"}

    made = spec(planned(replace(marked, annotations=annotations)))

    assert made == {"minMember": 2, "queue": "vision", "members": VOLCANO_MEMBERS}


def test_an_invalid_object_is_reported_at_itself() -> None:
    tasks = {"x" * 10: 1, "": 2}
    made = planned(volcano_pod("w-0"), body=volcano_group(minMember=3, minTaskMember=tasks))

    assert made.groups == ()
    (problem,) = made.problems
    assert problem.reason is ProblemReason.GROUP_NOT_USABLE
    assert problem.object.uid == "volcano-1"


# -- Kueue's pod groups --------------------------------------------------------------------------


def kueue_pod(name: str) -> PodFacts:
    return pod(
        name,
        annotations={"kueue.x-k8s.io/pod-group-total-count": "3"},
        labels={
            "kueue.x-k8s.io/pod-group-name": "group",
            "kueue.x-k8s.io/queue-name": "user-queue",
            "kueue.x-k8s.io/managed": "true",
        },
    )


def test_plain_pods_of_kueue_are_a_gang_of_their_total_count() -> None:
    made = planned(kueue_pod("p-1"), kueue_pod("p-0"))

    assert spec(made) == {
        "minMember": 3,
        "queue": "user-queue",
        "members": [{"label": {"key": "kueue.x-k8s.io/pod-group-name", "value": "group"}}],
    }
    (group,) = made.groups
    assert group.owner.uid == "p-0-uid", "the oldest pod, as nothing else owns them"


def test_the_group_of_plain_pods_exists_while_one_of_them_exists() -> None:
    gone = replace(kueue_pod("p-0"), is_deleted=True)

    (group,) = planned(gone, kueue_pod("p-1")).groups

    assert group.owner.uid == "p-1-uid"


# -- rules for all -------------------------------------------------------------------------------


@pytest.mark.parametrize("pods", [[kueue_pod("p-0"), kueue_pod("p-1")]])
def test_the_order_of_pods_does_not_change_the_plan(pods: list[PodFacts]) -> None:
    assert planned(*pods) == planned(*pods[::-1])


def test_a_pod_without_marks_has_no_contract() -> None:
    assert contract_of(pod("w-0", labels={"app": "web"})) is None


def test_a_mark_with_an_invalid_pod_group_name_is_reported_at_the_pod() -> None:
    made = planned(replace(kueue_pod("p-0"), labels={"kueue.x-k8s.io/pod-group-name": "My_Gang"}))

    assert not made.groups
    (problem,) = made.problems
    assert (problem.object.name, problem.reason) == ("p-0", "InvalidValue")
    assert "My_Gang" in problem.message


def test_settings_of_the_pod_are_used_together_with_the_mark() -> None:
    annotations = {
        "pod-group-name": "g",
        names.TOPOLOGY_REQUIRED_KEY: "example.com/rack",
        names.EXPECTED_RUNTIME_ANNOTATION: "60",
        names.MIN_MEMBER_KEY: "2",
    }

    made = spec(planned(pod("w-0", annotations=annotations)))

    assert made["minMember"] == 2
    assert made["expectedRuntimeSeconds"] == 60
    assert made["topology"] == {"required": "example.com/rack"}
