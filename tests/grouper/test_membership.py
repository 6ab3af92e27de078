"""The scheduler finds the pods of each planned group, and accepts its tree."""

import json
from typing import Any

import msgspec
import pytest

from bindery.grouper.table import GroupPlan, PodFacts, load, plan
from bindery.kube.objects.membership import Claims, member_problem
from bindery.kube.objects.models import validated
from bindery.kube.objects.podgroups import PodGroup, PodGroupSpec
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model import constraints, gangs, stages
from tests.grouper import goldens

TABLE = load()
PLANS = {
    name: plan(golden.owners, golden.pods, TABLE)
    for name in goldens.names()
    for golden in [goldens.load_golden(name)]
}
GROUPED = sorted(name for name, found in PLANS.items() if found.groups)


def stored(found: GroupPlan) -> list[PodGroup]:
    return [
        msgspec.json.decode(json.dumps(group.to_object()).encode(), type=PodGroup)
        for group in found.groups
    ]


def pod_of(facts: PodFacts) -> Pod:
    metadata: dict[str, Any] = {
        "uid": facts.uid,
        "name": facts.name,
        "namespace": facts.namespace,
        "labels": dict(facts.labels),
        "annotations": dict(facts.annotations),
    }
    if facts.controller is not None:
        at = facts.controller
        owner = {"apiVersion": at.api_version, "kind": at.kind, "name": at.name, "uid": at.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return msgspec.json.decode(json.dumps({"metadata": metadata}).encode(), type=Pod)


@pytest.mark.parametrize("name", GROUPED)
def test_each_pod_is_in_its_group_and_in_a_leaf_sub_group(name: str) -> None:
    found, pods = PLANS[name], goldens.load_golden(name).pods
    groups = {group.name: group for group in found.groups}
    claims = Claims(stored(found))

    for facts in pods:
        membership = claims.of(pod_of(facts))

        assert facts.uid in groups[membership.group].pods
        assert membership.others == ()
        parts = groups[membership.group].spec.sub_groups
        leaves = {part.name for part in parts} - {part.parent for part in parts}
        assert (membership.sub_group in leaves) == bool(parts)


@pytest.mark.parametrize("name", GROUPED)
def test_the_scheduler_accepts_the_tree_the_stages_and_the_topology(name: str) -> None:
    for group in stored(PLANS[name]):
        tree = gangs.build(group.spec.sub_groups, group.spec.min_sub_group)
        constraints.read(group.spec.topology)

        assert member_problem(group.spec) is None
        if tree is not None:
            later = {stage.name for stage in stages.read(tree)}
            assert later == {part.name for part in group.spec.sub_groups if part.after}


@pytest.mark.parametrize("name", GROUPED)
def test_the_written_form_fits_the_definition(name: str) -> None:
    for group in PLANS[name].groups:
        written = group.to_object()

        assert validated(PodGroupSpec, written["spec"]) == group.spec


@pytest.mark.parametrize("name", GROUPED)
def test_min_member_is_the_sum_of_the_minima_of_the_first_stage(name: str) -> None:
    for group in PLANS[name].groups:
        parts = group.spec.sub_groups
        later = {part.name for part in parts if part.after}
        for part in parts:  # a parent stands before its children
            if part.parent in later:
                later.add(part.name)
        first = sum(part.min_member or 0 for part in parts if part.name not in later)
        if parts and group.spec.min_sub_group is None:
            assert group.spec.min_member == first
