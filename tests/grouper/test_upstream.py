"""The PodGroups and CompositePodGroups of Kubernetes: conversion, and the reported conditions."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bindery.api import names
from bindery.grouper.table.facts import PodFacts
from bindery.grouper.table.groups import Group, ProblemReason, WantedObject
from bindery.grouper.upstream import trees, v1alpha2, v1alpha3, v1beta1
from bindery.grouper.upstream.adapters import ADAPTERS
from bindery.grouper.upstream.model import COMPOSITE, POD_GROUP, Adapter, Body
from bindery.grouper.upstream.planning import UpstreamGang, UpstreamPlan, plan
from bindery.grouper.upstream.reports import UpstreamFinding, conditions
from bindery.kube.objects.declaring import to_wire
from bindery.kube.objects.watched import Condition

NOW = "2026-01-02T00:00:00Z"
LATER = pytest.mark.parametrize("adapter", [v1alpha3.ADAPTER, v1beta1.ADAPTER])


def group(
    adapter: Adapter,
    spec: Mapping[str, Any],
    name: str = "train",
    kind: str = POD_GROUP,
    **meta: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": adapter.api_version,
        "kind": kind,
        "metadata": {"namespace": "space", "name": name, "uid": f"{name}-0123456789", **meta},
        "spec": spec,
    }


def gang(count: int) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


BASIC: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}


def pods(*names_: str, of: str = "train", **further: Any) -> list[PodFacts]:
    return [
        PodFacts(
            uid=f"{name}-uid",
            name=name,
            namespace="space",
            labels={},
            annotations={},
            controller=None,
            created=f"2026-01-01T00:00:0{index}Z",
            scheduler_name="bindery",
            scheduling_group=of,
            **further,
        )
        for index, name in enumerate(names_)
    ]


def planned(adapter: Adapter, body: Body, *below: Body, **further: Any) -> UpstreamPlan:
    read = [adapter.read(each) for each in below]
    further = {"pods": pods("a", "b"), **further}
    return plan(UpstreamGang(root=adapter.read(body), below=read, **further))


def spec(outcome: UpstreamPlan) -> dict[str, Any]:
    (made,) = outcome.plan.groups
    assert not outcome.error
    return dict(to_wire(made.spec))


MEMBERS = [{"schedulingGroup": "train"}]


# -- one group -----------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda each: each.version)
def test_the_minimum_of_a_gang_is_its_count(adapter: Adapter) -> None:
    outcome = planned(adapter, group(adapter, gang(3)))

    assert spec(outcome) == {"minMember": 3, "members": MEMBERS}
    (made,) = outcome.plan.groups
    assert made.name == "podgroup-train-train-01"
    assert made.owner.uid == "train-0123456789"
    assert made.pods == ("a-uid", "b-uid")


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda each: each.version)
def test_the_minimum_of_a_basic_group_is_one_pod(adapter: Adapter) -> None:
    assert spec(planned(adapter, group(adapter, BASIC))) == {"members": MEMBERS}


@pytest.mark.parametrize(
    ("adapter", "field", "value", "expected"),
    [
        (v1alpha2.ADAPTER, "disruptionMode", "Pod", {}),
        (v1alpha2.ADAPTER, "disruptionMode", "PodGroup", {"disruptionMode": "Group"}),
        (v1alpha3.ADAPTER, "disruptionMode", {"single": {}}, {}),
        (v1alpha3.ADAPTER, "disruptionMode", {"all": {}}, {"disruptionMode": "Group"}),
        (v1beta1.ADAPTER, "disruptionMode", {"all": {}}, {"disruptionMode": "Group"}),
        (v1beta1.ADAPTER, "preemptionPolicy", "Never", {"preemptionPolicy": "Never"}),
        (v1beta1.ADAPTER, "preemptionPolicy", "PreemptLowerPriority", {}),
        (v1alpha2.ADAPTER, "priorityClassName", "high", {"priorityClassName": "high"}),
        (
            v1alpha2.ADAPTER,
            "schedulingConstraints",
            {"topology": [{"key": "example.com/rack"}]},
            {"topology": {"required": "example.com/rack"}},
        ),
    ],
)
def test_each_field_of_a_group_is_converted(
    adapter: Adapter, field: str, value: object, expected: dict[str, Any]
) -> None:
    made = spec(planned(adapter, group(adapter, {**gang(2), field: value})))

    assert made == {"minMember": 2, "members": MEMBERS, **expected}


@pytest.mark.parametrize(
    "policy", [{}, {"gang": {}}, {"gang": {"minCount": 0}}, {"gang": {"minCount": "three"}}]
)
def test_a_group_without_a_readable_policy_is_an_error(policy: dict[str, Any]) -> None:
    outcome = planned(v1beta1.ADAPTER, group(v1beta1.ADAPTER, {"schedulingPolicy": policy}))

    assert outcome.plan.groups == ()
    assert "spec.schedulingPolicy" in outcome.error
    assert [each.reason for each in outcome.plan.problems] == [ProblemReason.GROUP_NOT_USABLE]


def test_the_name_contains_a_part_of_the_uid_because_names_are_reused() -> None:
    one = planned(v1alpha2.ADAPTER, group(v1alpha2.ADAPTER, gang(1), uid="aaaaaaaa-1"))
    two = planned(v1alpha2.ADAPTER, group(v1alpha2.ADAPTER, gang(1), uid="bbbbbbbb-1"))

    assert [each.plan.groups[0].name for each in (one, two)] == [
        "podgroup-train-aaaaaaaa",
        "podgroup-train-bbbbbbbb",
    ]


# -- our labels and annotations ------------------------------------------------------------------


def workload(**annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"namespace": "space", "name": "work", "uid": "w", "annotations": annotations},
        "spec": {"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "job"}},
    }


def job(queue: str) -> dict[str, Any]:
    labels = {names.QUEUE_LABEL: queue}
    meta = {"namespace": "space", "name": "job", "uid": "j", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}


FROM_WORKLOAD = {
    **gang(2),
    "podGroupTemplateRef": {"workload": {"workloadName": "work", "podGroupTemplateName": "t"}},
}
AT_JOB = ("batch", "Job", "job")


def test_the_queue_is_from_the_nearest_object_that_names_one() -> None:
    labelled = pods("a")
    labelled[0] = replace(labelled[0], labels={names.QUEUE_LABEL: "of-pod"})
    layers: dict[str, dict[str, Any]] = {
        "of-pod": {"pods": labelled},
        "of-job": {"workloads": {"work": workload()}, "controllers": {AT_JOB: job("of-job")}},
        "of-workload": {"workloads": {"work": workload(**{names.QUEUE_LABEL: "of-workload"})}},
        "of-group": {},
    }
    given: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    for expected, further in layers.items():
        given |= further
        if expected == "of-group":
            meta = {"labels": {names.QUEUE_LABEL: "of-group"}}

        outcome = planned(v1alpha2.ADAPTER, group(v1alpha2.ADAPTER, FROM_WORKLOAD, **meta), **given)

        assert spec(outcome)["queue"] == expected
    (made,) = outcome.plan.groups
    assert json.loads(json.dumps(dict(made.sources)))["queue"] == "PodGroup/train"


@pytest.mark.parametrize(
    ("of_pods", "of_group", "pool", "is_told"),
    [("a", "", "a", False), ("a", "a", "a", False), ("a", "b", "a", True), ("", "b", "", True)],
)
def test_the_node_pool_is_the_node_pool_of_the_pods(
    of_pods: str, of_group: str, pool: str, is_told: bool
) -> None:
    def labels(value: str) -> dict[str, str]:
        return {names.NODE_POOL_LABEL: value} if value else {}

    labelled = [replace(each, labels=labels(of_pods)) for each in pods("a", "b")]
    body = group(v1beta1.ADAPTER, gang(2), labels=labels(of_group))

    outcome = planned(v1beta1.ADAPTER, body, pods=labelled)

    (made,) = outcome.plan.groups
    assert made.labels.get(names.NODE_POOL_LABEL, "") == pool
    assert ("nodePool" in made.sources) == bool(pool)
    told = [each for each in outcome.plan.problems if each.object.name == "train"]
    assert bool(told) == is_told
    assert all("it must be a label of the pod template" in each.message for each in told)


def test_the_node_pool_of_a_group_without_pods_is_from_its_label() -> None:
    body = group(v1beta1.ADAPTER, gang(2), labels={names.NODE_POOL_LABEL: "a"})

    outcome = planned(v1beta1.ADAPTER, body, pods=[])

    (made,) = outcome.plan.groups
    assert made.labels == {names.NODE_POOL_LABEL: "a"}
    assert made.sources["nodePool"].endswith("/train")
    assert outcome.plan.problems == ()


def test_the_owner_of_a_workload_is_requested() -> None:
    outcome = planned(
        v1alpha2.ADAPTER,
        group(v1alpha2.ADAPTER, FROM_WORKLOAD),
        workloads={"work": workload()},
    )

    assert outcome.plan.wanted == (WantedObject("batch", "Job", "space", "job"),)


def test_settings_without_an_upstream_field_are_from_annotations() -> None:
    annotations = {
        names.TOPOLOGY_PREFERRED_KEY: "example.com/rack",
        names.EXPECTED_RUNTIME_ANNOTATION: "3600",
        names.SEGMENT_SIZE_KEY: "4",
    }
    body = group(
        v1beta1.ADAPTER,
        {**gang(8), "schedulingConstraints": {"topology": [{"key": "example.com/block"}]}},
        annotations=annotations,
    )

    made = spec(planned(v1beta1.ADAPTER, body))

    assert made["expectedRuntimeSeconds"] == 3600
    assert made["topology"] == {
        "required": "example.com/block",
        "preferred": "example.com/rack",
        "segments": {"size": 4},
    }


# -- pods that do not belong together ------------------------------------------------------------


def test_pods_of_two_schedulers_are_an_error() -> None:
    stranger = replace(pods("z")[0], scheduler_name="default-scheduler")

    outcome = planned(v1alpha2.ADAPTER, group(v1alpha2.ADAPTER, gang(3)), strangers=[stranger])

    assert outcome.plan.groups == ()
    assert "pod z names default-scheduler" in outcome.error


def test_an_ended_pod_of_another_scheduler_is_no_error() -> None:
    stranger = replace(pods("z")[0], scheduler_name="other", phase="Succeeded")

    assert not planned(
        v1alpha2.ADAPTER, group(v1alpha2.ADAPTER, gang(3)), strangers=[stranger]
    ).error


@LATER
def test_pods_with_two_priorities_are_an_error_since_1_37(adapter: Adapter) -> None:
    mixed = [*pods("a", priority_class="high"), *pods("b", priority_class="low")]

    outcome = planned(adapter, group(adapter, gang(2)), pods=mixed, demands_one_priority=True)

    assert "priority classes: high, low" in outcome.error


# -- composite groups ----------------------------------------------------------------------------


def composite(name: str, count: int | None, parent: str = "", **further: Any) -> dict[str, Any]:
    policy = {"basic": {}} if count is None else {"gang": {"minGroupCount": count}}
    made = {"schedulingPolicy": policy, **further}
    if parent:
        made["parentCompositePodGroupName"] = parent
    return group(v1alpha3.ADAPTER, made, name, COMPOSITE)


def child(name: str, count: int, parent: str, **further: Any) -> dict[str, Any]:
    made = {**gang(count), "parentCompositePodGroupName": parent, **further}
    return group(v1beta1.ADAPTER, made, name)


@dataclass
class Objects:
    """Upstream's objects, as a test has them."""

    bodies: list[dict[str, Any]] = field(default_factory=list)

    def get(self, adapter: Adapter, kind: str, name: str) -> Body | None:
        found = (b for b in self.all(adapter, kind) if b["metadata"]["name"] == name)
        return next(iter(found), None)

    def all(self, adapter: Adapter, kind: str) -> Iterable[Body]:
        wanted = (adapter.api_version, kind)
        return [each for each in self.bodies if (each["apiVersion"], each["kind"]) == wanted]


TREE = [
    composite("whole", 2, schedulingConstraints={"topology": [{"key": "example.com/block"}]}),
    composite("serving", None, "whole"),
    child(
        "decode", 4, "serving", schedulingConstraints={"topology": [{"key": "example.com/rack"}]}
    ),
    child("prefill", 2, "serving"),
    child("router", 1, "whole"),
    child("else", 1, ""),
]


def test_a_tree_of_groups_is_one_pod_group() -> None:
    tree = trees.tree(Objects(TREE), "decode")

    assert [each.name for each, _ in tree] == ["whole", "serving", "router", "decode", "prefill"]
    (root, _), *below = tree
    outcome = plan(
        UpstreamGang(root=root, below=[each for each, _ in below], pods=pods("a", of="decode"))
    )
    assert spec(outcome) == {
        "members": [
            {"schedulingGroup": "router"},
            {"schedulingGroup": "decode"},
            {"schedulingGroup": "prefill"},
        ],
        "minSubGroup": 2,
        "topology": {"required": "example.com/block"},
        "subGroups": [
            {"name": "composite-serving", "minSubGroup": 0},
            {"name": "router", "minMember": 1, "schedulingGroup": "router"},
            {
                "name": "decode",
                "parent": "composite-serving",
                "minMember": 4,
                "schedulingGroup": "decode",
                "topology": {"required": "example.com/rack"},
            },
            {
                "name": "prefill",
                "parent": "composite-serving",
                "minMember": 2,
                "schedulingGroup": "prefill",
            },
        ],
    }


@pytest.mark.parametrize("name", ["decode", "prefill", "router"])
def test_every_group_of_a_tree_gives_the_same_tree(name: str) -> None:
    assert trees.tree(Objects(TREE), name) == trees.tree(Objects(TREE[::-1]), "decode")


def test_a_tree_without_its_root_is_awaited() -> None:
    assert trees.tree(Objects(TREE[1:]), "decode") == []


def test_parents_on_a_cycle_form_no_tree() -> None:
    circle = [composite("one", 1, "two"), composite("two", 1, "one"), child("leaf", 1, "one")]

    assert trees.tree(Objects(circle), "leaf") == []


# -- reports -------------------------------------------------------------------------------------


def condition(status: str, reason: str = "", message: str = "") -> Condition:
    return Condition(type="Scheduled", status=status, reason=reason, message=message)


def reported(
    adapter: Adapter, finding: UpstreamFinding, known: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]] | None:
    body = group(adapter, gang(2), generation=7)
    body["status"] = {"conditions": known or []}
    return conditions(adapter.read(body), adapter, finding, is_root=True, now=NOW)


WAITS = UpstreamFinding([condition("False", "Unschedulable", "no room")])


@pytest.mark.parametrize(
    ("adapter", "kind"),
    [
        (v1alpha2.ADAPTER, "PodGroupScheduled"),
        (v1alpha3.ADAPTER, "PodGroupInitiallyScheduled"),
        (v1beta1.ADAPTER, "PodGroupInitiallyScheduled"),
    ],
)
def test_a_gang_that_waits_is_unschedulable(adapter: Adapter, kind: str) -> None:
    assert reported(adapter, WAITS) == [
        {
            "type": kind,
            "status": "False",
            "reason": "Unschedulable",
            "message": "Unschedulable: no room",
            "observedGeneration": 7,
            "lastTransitionTime": NOW,
        }
    ]


def test_reasons_other_than_missing_room_are_scheduler_errors() -> None:
    invalid = UpstreamFinding([condition("False", "Invalid", "a cycle")])

    for finding in (invalid, UpstreamFinding(error="a cycle")):
        found = reported(v1alpha2.ADAPTER, finding)
        assert found is not None
        assert (found[0]["status"], found[0]["reason"]) == ("False", "SchedulerError")
        assert "a cycle" in found[0]["message"]


def test_unchanged_conditions_are_not_written() -> None:
    first = reported(v1alpha2.ADAPTER, WAITS)

    assert reported(v1alpha2.ADAPTER, WAITS, first) is None


def test_conditions_of_other_controllers_are_kept() -> None:
    other = {
        "type": "Frobbed",
        "status": "True",
        "reason": "X",
        "message": "",
        "lastTransitionTime": NOW,
    }

    found = reported(v1alpha2.ADAPTER, WAITS, [other])

    assert found is not None
    assert other in found


@pytest.mark.parametrize(("adapter", "stays"), [(v1alpha2.ADAPTER, False), (v1beta1.ADAPTER, True)])
def test_a_scheduled_group_keeps_its_condition_since_1_37(adapter: Adapter, stays: bool) -> None:
    first = reported(adapter, UpstreamFinding([condition("True")]))
    assert first is not None
    assert first[0]["status"] == "True"

    second = reported(adapter, WAITS, first)

    if stays:
        assert second is None
    else:
        assert second is not None
        assert second[0]["status"] == "False"


def test_an_evicted_gang_is_a_disruption_target_until_it_runs_again() -> None:
    evicted = Condition(type="Evicted", status="True", message="reclaimed for queue b")

    first = reported(v1alpha2.ADAPTER, UpstreamFinding([condition("True"), evicted]))

    assert first is not None
    target = next(each for each in first if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    second = reported(v1alpha2.ADAPTER, UpstreamFinding([condition("True")]), first)
    assert second is not None
    assert next(each for each in second if each["type"] == "DisruptionTarget")["status"] == "False"


def test_a_child_group_is_scheduled_when_its_own_pods_are_bound() -> None:
    leaf = v1beta1.ADAPTER.read(child("decode", 2, "serving"))
    bound = pods("a", "b", of="decode", is_bound=True)
    whole = UpstreamFinding([condition("True")], pods=[bound[0]])

    assert conditions(leaf, v1beta1.ADAPTER, whole, is_root=False, now=NOW) is None
    found = conditions(leaf, v1beta1.ADAPTER, replace(whole, pods=bound), is_root=False, now=NOW)
    assert found is not None
    assert found[0]["status"] == "True"


def test_a_planned_group_is_converted_to_an_object_with_its_owner() -> None:
    (made,) = planned(v1alpha2.ADAPTER, group(v1alpha2.ADAPTER, gang(3))).plan.groups

    assert isinstance(made, Group)
    assert made.to_object()["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "name": "train",
            "uid": "train-0123456789",
        }
    ]
