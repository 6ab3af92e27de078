"""The obstacles, turns and advice in the answers of `explain`."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import bindery.scheduler
from bindery.answers.explanation import explain
from bindery.answers.source import Source
from bindery.answers.subjects import subject
from bindery.cli.text.gang import job_lines
from bindery.kube.objects.budgets import BudgetSpec, BudgetStatus, DisruptionBudget
from bindery.kube.objects.podgroups import PodGroup, PodGroupSpec
from bindery.kube.objects.queueaccess import AccessReason
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.watched import Meta
from bindery.scheduler.insight.advice import Changed, advice, node_advice
from bindery.scheduler.insight.waiting import explain_all
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.starts import StartReason
from tests.inlinescenarios import scenario_of, source_of

POD_GROUP, WORKLOAD, POD = Changed.POD_GROUP, Changed.WORKLOAD, Changed.POD

GUARDED = """
nodes: [{name: "node{i}", count: 2, gpus: 4}]
queues:
- {name: research, gpu: {quota: 4}}
- {name: vision, gpu: {quota: 4}}
jobs:
- {name: theirs, queue: research, pods: [{gpus: 4, state: Running, node: node0}]}
- name: low
  queue: vision
  pods: [{count: 2, gpus: 2, state: Running, node: node1, labels: {app: low}}]
- {name: high, queue: vision, priority: build-preemptible, pods: [{gpus: 4}]}
"""


def guarded(allowed: int) -> Source:
    source = source_of(scenario_of(GUARDED))
    budget = DisruptionBudget(
        metadata=Meta(name="keep", namespace="default"),
        spec=BudgetSpec(selector=LabelSelector(match_labels={"app": "low"})),
        status=BudgetStatus(disruptions_allowed=allowed),
    )
    return replace(source, snapshot=replace(source.snapshot, budgets=(budget,)))


def explained(source: Source, name: str) -> list[str]:
    return job_lines(explain(source, subject(source.snapshot, name, "default"), source.now))


def test_a_budget_is_named_as_the_obstacle_before_the_rule_of_another_queue() -> None:
    answer = "\n".join(explained(guarded(0), "high"))

    assert "by evicting" not in answer
    assert "default/low (queue vision, priority 50)" in answer
    assert (
        "preempt is forbidden: PodDisruptionBudget default/keep allows no eviction of pod low-"
        in answer
    )
    assert "research is within its quota" not in answer
    assert "What to do: Wait until the disruption budget allows an eviction" in answer


def test_a_budget_that_allows_a_part_of_the_plan_is_named_with_the_plan() -> None:
    answer = explained(guarded(1), "high")

    assert "A cycle now would make room for it, by evicting 2 pods:" in answer
    assert "But PodDisruptionBudget default/keep does not allow all of it now." in answer


def test_a_budget_that_allows_the_evictions_is_not_named() -> None:
    answer = "\n".join(explained(guarded(2), "high"))

    assert "by evicting 2 pods" in answer
    assert "PodDisruptionBudget" not in answer


TURNS = """
nodes: [{name: node0, gpus: 4}]
queues: [{name: small, gpu: {limit: 1}}]
jobs:
- {name: never, pods: [{gpus: 8}]}
- {name: beyond, queue: small, pods: [{count: 2, gpus: 1}]}
- {name: lost, queue: nowhere, pods: [{gpus: 1}]}
- {name: few, minMember: 3, pods: [{gpus: 1}]}
- {name: runs, priority: build, pods: [{gpus: 4, state: Running, node: node0}]}
- {name: first, pods: [{gpus: 1}]}
- {name: second, pods: [{gpus: 1}]}
"""


def test_the_turn_excludes_gangs_that_can_never_run() -> None:
    source = source_of(scenario_of(TURNS))

    second = "\n".join(explained(source, "second"))

    assert (
        "Its turn: 2nd of 2 that wait, 2nd of 2 in queue default; before it comes default/first."
        in second
    )


@pytest.mark.parametrize("name", ["never", "beyond", "lost", "few"])
def test_a_gang_that_can_never_run_has_no_turn(name: str) -> None:
    assert "Its turn" not in "\n".join(explained(source_of(scenario_of(TURNS)), name))


def test_a_pod_group_of_an_unknown_queue_without_pods_is_explained() -> None:
    source = source_of(scenario_of("nodes: [{name: node0, gpus: 1}]"))
    group = PodGroup(
        metadata=Meta(name="empty", namespace="default", uid="empty"),
        spec=PodGroupSpec(queue="nowhere", min_member=2),
    )
    source = replace(source, snapshot=replace(source.snapshot, groups=(group,)))

    answer = explained(source, "empty")

    assert "It has no pods yet: at least 2 are needed." in answer
    assert "Its queue: QueueDoesNotExist: queue nowhere does not exist" in answer
    assert answer[-1].startswith("What to do: Create the queue")


@pytest.mark.parametrize(
    ("reason", "where", "min_member", "said", "not_said"),
    [
        ("Unschedulable", POD_GROUP, 3, "if spec.minMember is lower", "the pod request"),
        ("Unschedulable", WORKLOAD, 3, "annotation scheduling.bindery.dev/min-member", "spec."),
        ("Unschedulable", POD_GROUP, 1, "let the pods request less", "minMember"),
        ("Unschedulable", POD, 1, "let the pod request less", "minMember"),
        ("QueueDoesNotExist", POD_GROUP, 1, "spec.queue", "label"),
        ("QueueDoesNotExist", WORKLOAD, 1, "label scheduling.bindery.dev/queue of the", "spec."),
        ("QueueDoesNotExist", POD, 1, "label scheduling.bindery.dev/queue", "spec.queue"),
        ("NonPreemptibleOverQuota", POD, 1, "scheduling.bindery.dev/preemptible", "spec."),
        ("VolumesNotReady", POD_GROUP, 1, "PersistentVolumeClaim", "minMember"),
        ("BelowMinimum", POD_GROUP, 2, "lower spec.minMember", "nodes"),
        ("NotEnoughPods", WORKLOAD, 2, "lower the annotation", "spec.minMember"),
        ("RunTimeExceeded", WORKLOAD, 2, "run-time-limit-seconds of the workload", "spec."),
        ("TopologyNotUsable", WORKLOAD, 2, "annotations of the workload", "spec."),
        ("InvalidRequest", WORKLOAD, 1, "Correct the value in the message", "Remove"),
    ],
)
def test_the_advice_fits_the_reason_and_the_job(
    reason: str, where: Changed, min_member: int, said: str, not_said: str
) -> None:
    text = advice(reason, where=where, min_member=min_member, budget_blocks=False)

    assert said in text
    assert not_said not in text


OF_VICTIMS = {
    *("NeverPreempts", "NonPreemptible", "NotReclaimable", "NothingMoves", "OverFairShare"),
    *("PreemptionDelay", "PriorityNotLower", "MinRuntime", "NotAllowed"),
    *("RelatedQueue", "WithinShare", "WouldBeFuller"),
}
"""Reasons for which an action does not evict, and which no job waits for."""


def test_every_reason_why_the_scheduler_refuses_a_job_has_advice() -> None:
    folder = Path(bindery.scheduler.__file__).parent
    sources = [path.read_text() for path in folder.rglob("*.py") if "insight" not in path.parts]
    refused = r"Refusal\(\s*JobReason\.(\w+)"
    reasons = {JobReason[found] for text in sources for found in re.findall(refused, text)}
    reasons -= {*OF_VICTIMS, JobReason.NOT_READY}  # of a plugin of somebody else's

    assert JobReason.VOLUMES_NOT_READY in reasons
    without = {
        reason
        for reason in reasons
        if not advice(reason, where=Changed.WORKLOAD, min_member=2, budget_blocks=False)
    }
    assert without == set()


@pytest.mark.parametrize("reason", [*JobReason, *AccessReason, *StartReason])
def test_no_advice_changes_the_spec_of_a_podgroup_of_the_grouper(
    reason: str,
) -> None:
    text = advice(reason, where=Changed.WORKLOAD, min_member=2, budget_blocks=False)

    assert "PodGroup" not in text or reason in ("WaitingForGroup", "PodGroupDoesNotExist")
    assert "{" not in text
    assert "spec." not in text.replace("spec.state", "")


NEEDS_BOTH = """
nodes: [{name: node0, gpus: 4}, {name: node1, gpus: 4}]
queues:
- {name: research, gpu: {quota: 0}}
- {name: vision, gpu: {quota: 6}}
jobs:
- {name: theirs, queue: research, pods: [{gpus: 2, state: Running, node: node0}]}
- {name: low, queue: vision, pods: [{gpus: 2, state: Running, node: node0}]}
- {name: fixed, queue: research, priority: build, pods: [{gpus: 4, state: Running, node: node1}]}
- {name: high, queue: vision, priority: build-preemptible, pods: [{gpus: 4}]}
"""


def test_room_that_needs_two_actions_together_is_not_promised() -> None:
    answer = explained(source_of(scenario_of(NEEDS_BOTH)), "high")

    assert "It would fit if 2 pods were evicted:" in answer
    assert "No rule forbids it: a later cycle may do it." not in answer
    assert (
        "But reclaim is forbidden: preempt takes pods of its own queue only and reclaim pods of "
        "others only, and neither makes enough room alone." in answer
    )


@pytest.mark.parametrize(
    ("against", "starts"),
    [
        (["do not match node selector disk=ssd", "do not match node affinity"], "No node has the"),
        (["did not match pod affinity rules"], "The pod affinity selects no pod"),
        (["did not match pod anti-affinity rules"], "The pod anti-affinity leaves no node"),
        (
            ["did not match pod affinity rules", "did not match pod anti-affinity rules"],
            "The pod affinity and the pod anti-affinity together",
        ),
        (["had untolerated taint {gpu}"], "Add a toleration"),
        (["have no nvidia.com/gpu", "have less cpu in all than requested"], "No node is large"),
        (["do not match node selector disk=ssd", "insufficient cpu"], ""),
        ([], ""),
    ],
)
def test_the_advice_fits_the_reason_that_excludes_all_nodes(
    against: list[str], starts: str
) -> None:
    found = node_advice(against)

    assert found.startswith(starts)
    assert bool(found) == bool(starts)


def test_the_answer_reports_a_selector_for_a_label_of_no_node() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n0, gpus: 8}]
        jobs: [{name: picky, pods: [{gpus: 1, nodeSelector: {disk: ssd}}]}]
        """
    )
    engine = source_of(scenario).world().engine

    (found,) = explain_all(engine, list(engine.cluster.state.jobs)).values()

    assert found.advice.startswith("No node has the labels that the pods require")


DEAD = """
now: 2026-01-01T01:00:00Z
nodes: [{name: n0, gpus: 8, ready: false}]
jobs:
- {name: gone, pods: [{count: 2, gpus: 1, state: Releasing, node: n0}]}
- {name: lost, pods: [{count: 2, gpus: 1, state: Running, node: n0}]}
"""


def test_deleted_pods_of_a_dead_node_are_explained_with_advice() -> None:
    answer = explained(source_of(scenario_of(DEAD)), "gone")

    assert "2 of 2 pods are bound (2 being deleted), at least 2 are needed" in answer[0]
    assert any("2 pods are being deleted" in line and "node n0" in line for line in answer)
    assert "node.kubernetes.io/out-of-service" in answer[-1]
    assert "kubectl delete pod --force" in answer[-1]


def test_a_single_deleted_pod_of_a_dead_node_is_explained_with_advice() -> None:
    source = source_of(scenario_of(DEAD))
    pods = [
        msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, annotations={}, labels={})
        )
        for pod in source.snapshot.pods
    ]
    source = replace(source, snapshot=replace(source.snapshot, groups=(), pods=tuple(pods)))

    answer = explained(source, "gone-0")

    assert not any("It has no pods" in line for line in answer)
    assert any("1 pod is being deleted" in line and "node n0" in line for line in answer)
    assert "node.kubernetes.io/out-of-service" in "\n".join(answer)


def test_bound_pods_of_a_dead_node_are_explained_with_advice() -> None:
    answer = "\n".join(explained(source_of(scenario_of(DEAD)), "lost"))

    assert "2 of 2 bound pods are not known to run" in answer
    assert "What to do: Mend the node" in answer
