"""`bindery explain`: its output over clusters that scenarios describe."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from bindery.answers.errors import NoAnswerError
from bindery.answers.evictions import evicted_for
from bindery.answers.explanation import explain
from bindery.answers.source import Source
from bindery.answers.subjects import subject
from bindery.api.names import MADE_BY_GROUPER, MADE_BY_LABEL, SOURCES_ANNOTATION
from bindery.api.times import timestamp
from bindery.cli.tables import working
from bindery.cli.text.gang import job_lines
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Condition, Meta, OwnerReference
from bindery.scenario.format import Scenario
from bindery.scheduler.cache.eviction_history import EvictionRecord
from bindery.scheduler.model.evictions import Claimant, room_reason
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.status.gangs import eviction_text
from tests.commandline import CommandLine
from tests.inlinescenarios import scenario_of, source_of
from tests.steps import StepClock

CLUSTER = """
nodes:
- {name: small, gpus: 2}
- {name: big, gpus: 8, taints: [{key: team, value: red, effect: NoSchedule}]}
- {name: down, gpus: 8, ready: false}
queues:
- {name: q0, gpu: {limit: 3}}
jobs:
- {name: huge, pods: [{count: 3, gpus: 1}]}
- {name: over, queue: q0, pods: [{count: 4, gpus: 1}]}
- {name: lost, queue: nowhere, pods: [{gpus: 1}]}
- {name: few, minMember: 3, pods: [{gpus: 1}]}
- {name: fits, pods: [{cpu: "1"}]}
- {name: runs, pods: [{cpu: "1", state: Running, node: small}]}
- {name: going, pods: [{cpu: "1"}]}
bindRequests:
- {pods: [going-0], node: small}
"""


@pytest.fixture(scope="module")
def cluster() -> Scenario:
    return scenario_of(CLUSTER)


def explained(cluster: Scenario, name: str) -> str:
    source = source_of(cluster)
    about = subject(source.snapshot, name, "default")
    return "\n".join(job_lines(explain(source, about, cluster.now)))


def test_a_gang_that_does_not_fit_is_explained_with_the_refusals_of_all_nodes(
    cluster: Scenario,
) -> None:
    group, gate, nodes, first, second, *_, advice = explained(cluster, "huge").splitlines()
    against = [first, second]

    assert group == (
        "PodGroup default/huge (queue default, 7s old): "
        "0 of 3 pods are bound, at least 3 are needed."
    )
    assert gate.startswith("Held by: Unschedulable: 2 of 3 pods fit; for the next one 0/3 nodes")
    assert nodes == "Nodes that would take one of its 3 equal pods that wait (1 gpu): 1 of 3"
    assert [line.split()[0] for line in against] == ["1", "1"]
    assert any("not ready" in line for line in against)
    assert any("untolerated taint" in line for line in against)
    assert advice.startswith("What to do: Free or add nodes")


@pytest.mark.parametrize(
    ("name", "gate", "advice"),
    [
        ("over", "OverLimit: queue q0 holds 0 of its limit of 3", "raise the limit"),
        ("lost", "QueueDoesNotExist: queue nowhere does not exist", "Create the queue"),
        ("few", "NotEnoughPods: 1 of 3 required pods exist", "lower spec.minMember"),
    ],
)
def test_the_gate_that_holds_a_gang_is_shown_with_advice(
    cluster: Scenario, name: str, gate: str, advice: str
) -> None:
    answer = explained(cluster, name)

    assert f"Held by: {gate}" in answer
    assert advice in answer.splitlines()[-1]


def test_a_gang_that_needs_no_pods_is_explained_with_the_reason_why_none_fits() -> None:
    world = scenario_of(
        """
        nodes: [{name: n, gpus: 2}]
        jobs: [{name: web, minMember: 0, pods: [{count: 2, gpus: 3}]}]
        """
    )

    text = explained(world, "web")

    assert "(queue default, 1s old): 0 of 2 pods are bound.\n" in text
    lacks = "1 have less nvidia.com/gpu in all than requested"
    assert f"Held by: Unschedulable: 0/1 nodes are available: {lacks}" in text
    assert "What to do: No node is large enough, even if it is empty" in text


def test_bound_pods_on_a_node_that_is_not_ready_are_shown() -> None:
    world = scenario_of(
        """
        nodes: [{name: n, gpus: 2, ready: false}]
        jobs: [{name: runs, pods: [{gpus: 1, state: Bound, node: n}]}]
        """
    )

    text = explained(world, "runs")

    assert "1 of 1 bound pods is not known to run: runs-0: node n is not ready." in text


def test_extra_pods_that_do_not_fit_are_shown_with_advice() -> None:
    world = scenario_of(
        """
        nodes: [{name: n, gpus: 2}]
        jobs:
        - name: web
          minMember: 1
          pods: [{count: 1, gpus: 2, state: Running, node: n}, {count: 2, gpus: 2}]
        """
    )

    text = explained(world, "web")

    assert "2 more pods wait: 0/1 nodes are available: 1 insufficient nvidia.com/gpu" in text
    assert text.endswith("or let the pods request less or other nodes.")


def test_a_pod_is_explained_with_its_gang(cluster: Scenario) -> None:
    answer = explained(cluster, "pod/over-2").splitlines()

    assert answer[0] == "Pod default/over-2 waits."
    assert answer[1].startswith("PodGroup default/over ")
    assert answer[2].startswith("Held by: OverLimit")


def test_a_gang_that_fits_is_shown_with_its_places(cluster: Scenario) -> None:
    assert "A cycle now would place 1 of its pods:\n  small: fits-0" in explained(cluster, "fits")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("runs-0", "Pod default/runs-0 is bound to node small (Running)."),
        ("going-0", "Pod default/going-0 is being bound to node small."),
    ],
)
def test_a_pod_that_does_not_wait_is_shown_with_its_place(
    cluster: Scenario, name: str, line: str
) -> None:
    answer = explained(cluster, name).splitlines()

    assert answer[0] == line
    assert "None of its pods waits for the scheduler." in answer


SCORED = """
config:
  plugins: {nodeplacement: {gpu: binpack}}
  weights: {nodepreference: 0.5}
nodes:
- {name: empty, gpus: 4}
- {name: busy, gpus: 4}
- {name: full, gpus: 4}
- {name: liked, gpus: 4, labels: {fast: "1"}}
- {name: small, gpus: 1}
- {name: tainted, gpus: 4, taints: [{key: k, effect: NoSchedule}]}
- {name: other, gpus: 4}
jobs:
- {name: f, pods: [{gpus: 4, state: Running, node: full}]}
- {name: b, pods: [{gpus: 2, state: Running, node: busy}]}
- name: a
  pods:
  - count: 2
    gpus: 1
    affinity:
      nodeAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 10
          preference: {matchExpressions: [{key: fast, operator: Exists}]}
"""


def test_the_best_nodes_are_shown_with_each_plugins_part_of_the_score() -> None:
    answer = explained(scenario_of(SCORED), "a").splitlines()

    at = answer.index("Best nodes for a-0 and 1 equal pod, by score:")
    table = [line.split() for line in answer[at + 1 : at + 7]]
    assert table[0] == ["node", "score", "nodepreference", "nodeplacement"]
    assert [row[0] for row in table[1:]] == ["liked", "small", "busy", "empty", "other"]
    assert table[1] == ["liked", "50.00", "50.00", "0.00"]
    assert table[3][1:] == ["4.50", "0.00", "4.50"]


def test_the_nodes_of_a_running_pod_are_compared_as_if_it_had_left() -> None:
    answer = explained(scenario_of(SCORED), "pod/f-0").splitlines()

    at = answer.index("Best nodes for f-0, bound to full, by score:")
    rows = [line.split() for line in answer[at + 2 : at + 7]]
    assert [row[0] for row in rows] == ["empty", "full", "liked", "other", "busy"]
    assert rows[1][-2:] == ["its", "node"]
    assert rows[4][-3:] == ["no", "room", "now"]


def test_nodes_that_can_never_hold_the_pod_are_not_among_the_best() -> None:
    world = scenario_of(
        """
        nodes:
        - {name: small, gpus: 1, labels: {x: y}}
        - {name: other, gpus: 4}
        - {name: big, gpus: 4, labels: {x: y}}
        jobs:
        - {name: runs, pods: [{gpus: 4, state: Running, node: big}]}
        - {name: a, pods: [{gpus: 2, nodeSelector: {x: y}}]}
        """
    )

    answer = explained(world, "a").splitlines()

    at = answer.index("Best nodes for a-0, by score:")
    nodes = [line.split()[0] for line in answer[at + 2 :] if line.startswith("  ")]
    assert nodes == ["big"]


def test_a_gang_that_alone_exceeds_the_limit_is_advised_not_to_wait(cluster: Scenario) -> None:
    answer = explained(cluster, "over")

    assert "and the job requests 4 more, so that it alone is above the limit" in answer
    assert "What to do: It does not help to wait: raise the limit" in answer
    assert "Its turn" not in answer


def test_a_lower_minimum_is_not_advised_if_no_pod_fits() -> None:
    world = scenario_of(
        """
        nodes: [{name: n, gpus: 2}]
        jobs:
        - {name: runs, pods: [{gpus: 2, state: Running, node: n}]}
        - {name: a, pods: [{count: 2, gpus: 1}]}
        """
    )

    answer = explained(world, "a")

    assert "0 of 2 pods fit" in answer
    assert "minMember" not in answer


def test_a_missing_namespace_is_named() -> None:
    source = source_of(scenario_of("namespaces: {team: {}}"))

    with pytest.raises(NoAnswerError) as caught:
        subject(source.snapshot, "job/vis0", "nosuchns")

    assert "job/vis0 is not known" in str(caught.value)
    assert "in namespace nosuchns, which does not exist" in str(caught.value)


def test_the_answer_reports_that_no_node_may_hold_the_pod() -> None:
    text = "nodes: [{name: n}]\njobs: [{name: a, pods: [{nodeSelector: {x: y}}]}]"
    assert "No node may take a-0." in explained(scenario_of(text), "a")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hugh", "there is no PodGroup, pod or workload hugh in namespace default; did you mean "),
        ("pg/over-0", "there is no PodGroup over-0 in namespace default; did you mean over?"),
        ("node/small", "node/small is not known: no pod and no PodGroup has an owner of this kind"),
        ("pg.batch/over", "pg.batch/over is not known"),
        ("q0", "q0 is a queue; write queue/q0"),
        (
            "job/ovr",
            "there is no pod or PodGroup of Job ovr in namespace default; did you mean",
        ),
        ("deploy/over", "deploy/over is not known: no pod and no PodGroup has an owner of this"),
        ("br/gone", "there is no BindRequest gone in namespace default"),
    ],
)
def test_an_unknown_name_is_answered_with_similar_names(
    cluster: Scenario, name: str, message: str
) -> None:
    with pytest.raises(NoAnswerError) as caught:
        explained(cluster, name)

    assert str(caught.value).startswith(message)


SHARED = """
nodes: [{name: "node{i}", count: 2, gpus: 4}]
queues:
- {name: org, gpu: {quota: 8}}
- {name: research, parent: org, gpu: {quota: 4, weight: 1}}
- {name: vision, parent: org, gpu: {quota: 4, weight: 1}}
jobs:
- {name: "a{i}", count: 4, queue: research, pods: [{gpus: 1, state: Running, node: node0}]}
- {name: b, queue: vision, pods: [{gpus: 2, state: Running, node: node1}]}
- {name: pinned, queue: vision, priority: build, pods: [{gpus: 2, state: Running, node: node1}]}
- {name: want, queue: vision, pods: [{gpus: 2}]}
- {name: whole, queue: vision, pods: [{gpus: 4}]}
- {name: late, queue: vision, priority: build-preemptible, preemptionDelay: 1h, pods: [{gpus: 1}]}
"""


def test_the_answer_has_allocations_and_fair_shares_of_the_queue_and_its_ancestors() -> None:
    answer = explained(scenario_of(SHARED), "want").splitlines()

    at = answer.index("Its queue and those above it, in GPUs:")
    assert [line.split() for line in answer[at + 1 : at + 4]] == [
        ["quota", "fair", "share", "allocated", "requested", "limit"],
        ["org", "8", "8", "8", "15", "-"],
        ["vision", "4", "4", "4", "11", "-"],
    ]


def test_the_answer_has_the_turn_of_the_gang() -> None:
    answer = explained(scenario_of(SHARED), "want")

    assert "Its turn: 2nd of 3 that wait, 2nd of 3 in queue vision; before it comes" in answer


@pytest.mark.parametrize(
    ("changes", "name", "objection"),
    [
        ({}, "want", "preempt is forbidden: its priority 50 is not below the 50 of"),
        ({}, "late", "But preempt is forbidden: it waits 3600 s first."),
        (
            {"name: b, queue: vision": "name: b, queue: vision, priority: build"},
            "want",
            "reclaim is forbidden: queue research is within its quota: it holds 4 of 4 GPUs.",
        ),
        (
            {"name: b, queue: vision": "name: b, queue: vision, priority: build"},
            "want",
            "But reclaim is forbidden: with this job its queue would be above its fair share.",
        ),
        (
            {"nodes:": "config: {actions: [allocate]}\nnodes:"},
            "want",
            "But preempt is forbidden: the action preempt is not configured.",
        ),
        (
            {
                "queue: research, pods": "queue: research, priority: inference, pods",
                "name: b, queue: vision": "name: b, queue: vision, priority: build",
            },
            "want",
            "preempt is forbidden: it is not preemptible (priority 100).",
        ),
    ],
)
def test_possible_victims_are_shown_with_the_rule_that_forbids_their_eviction(
    changes: dict[str, str], name: str, objection: str
) -> None:
    text = SHARED
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)

    answer = explained(scenario_of(text), name)

    assert "It would fit if " in answer
    assert objection in answer


@pytest.mark.parametrize(
    ("protection", "objection"),
    [
        (
            "reclaimMinRuntime: 1h",
            "reclaim is forbidden: it has run for 60 s, and queue research protects jobs for 3600",
        ),
        (
            "reclaimable: false",
            "reclaim is forbidden: queue research, or one above it, is not reclaimable.",
        ),
    ],
)
def test_a_queue_that_protects_its_jobs_is_named(protection: str, objection: str) -> None:
    text = """
        nodes: [{name: node0, gpus: 4}]
        queues:
        - {name: research, gpu: {quota: 0}, PROTECTION}
        - {name: vision, gpu: {quota: 4}}
        jobs:
        - {name: a, queue: research, runtime: 1m, pods: [{gpus: 4, state: Running, node: node0}]}
        - {name: whole, queue: vision, pods: [{gpus: 4}]}
        """

    answer = explained(scenario_of(text.replace("PROTECTION", protection)), "whole")

    assert objection in answer


def test_the_first_of_many_victims_are_shown_and_the_others_are_counted() -> None:
    text = """
        nodes: [{name: node0, gpus: 8}]
        jobs:
        - {name: "a{i}", count: 8, pods: [{gpus: 1, state: Running, node: node0}]}
        - {name: whole, pods: [{gpus: 8}]}
        """

    answer = explained(scenario_of(text), "whole")

    assert "It would fit if 8 pods were evicted:" in answer
    assert answer.count("preempt is forbidden") == 5
    assert "  and 3 more jobs; -o json names them all" in answer


def test_a_queue_within_its_quota_is_shown_with_the_requested_resource() -> None:
    answer = explained(
        scenario_of(
            """
            nodes: [{name: n0, cpu: "8", gpus: 1}]
            queues:
            - {name: mine, cpu: {quota: "8", weight: 1}}
            - {name: theirs, cpu: {quota: "8", weight: 1}, gpu: {quota: 0, weight: 0}}
            jobs:
            - {name: a, queue: theirs, pods: [{cpu: "8", gpus: 1, state: Running, node: n0}]}
            - {name: waits, queue: mine, pods: [{cpu: "4"}]}
            """
        ),
        "waits",
    )

    assert "queue theirs is within its quota: it holds 8 of 8 cpu" in answer


def test_the_answer_reports_that_no_eviction_helps(cluster: Scenario) -> None:
    assert "No eviction would help." in explained(cluster, "huge")


def test_pods_that_could_only_move_are_shown_with_the_rule_that_keeps_them() -> None:
    answer = explained(
        scenario_of(
            """
            config: {actions: [allocate]}
            nodes: [{name: "node{i}", count: 2, gpus: 4}]
            jobs:
            - {name: a, pods: [{gpus: 2, state: Running, node: node0}]}
            - {name: b, pods: [{gpus: 2, state: Running, node: node1}]}
            - {name: big, pods: [{gpus: 4}]}
            """
        ),
        "big",
    )

    assert "It would fit if 1 pod moved:" in answer
    assert "But consolidation is forbidden: the action consolidation is not configured." in answer


def test_planned_evictions_are_shown_with_the_action_and_the_queue() -> None:
    text = SHARED.replace("build-preemptible, preemptionDelay: 1h", "build-preemptible")

    answer = explained(scenario_of(text), "late")

    assert "A cycle now would make room for it, by evicting 1 pod:" in answer
    assert "preempt: default/b-0 leaves node1 (queue vision)" in answer


def test_reserved_room_is_shown_with_the_expected_start() -> None:
    text = """
        nodes: [{name: "node{i}", count: 2, gpus: 4}]
        jobs:
        - name: a
          expectedRuntime: 1h
          runtime: 30m
          pods: [{gpus: 4, state: Running, node: node0}]
        - {name: big, pods: [{count: 2, gpus: 4}]}
        """

    answer = explained(scenario_of(text), "big")

    assert "Room is kept for it on node0, node1; it is expected to start at 00:30:00 UTC." in answer


def test_the_turn_of_a_gang_is_shown_with_the_allocations_of_the_queues_users() -> None:
    text = """
        nodes: [{name: n, gpus: 4}]
        queues: [{name: research, gpu: {weight: 1}, fairUsers: {}}]
        jobs:
        - name: runs
          queue: research
          labels: {scheduling.bindery.dev/user: ann}
          pods: [{gpus: 3, state: Running, node: n}]
        - name: old
          queue: research
          labels: {scheduling.bindery.dev/user: ann}
          pods: [{gpus: 2}]
        - {name: nobody, queue: research, pods: [{gpus: 2}]}
        - name: young
          queue: research
          labels: {scheduling.bindery.dev/user: bob}
          pods: [{gpus: 2}]
        """

    answer = explained(scenario_of(text), "old").splitlines()

    at = answer.index(
        "Its turn: 3rd of 3 that wait, 3rd of 3 in queue research; "
        "before it come default/nobody, default/young."
    )
    assert answer[at + 1] == (
        "Users of queue research take turns; the one that holds least comes first: "
        "jobs without a user 0%, bob 0%, ann (its own) 75%."
    )


def test_users_are_not_shown_for_a_queue_without_turns_of_users() -> None:
    assert "Users of queue" not in explained(scenario_of(SHARED), "whole")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_have_the_same_answer(
    command_line: CommandLine, tmp_path: Path, form: str
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SHARED)

    done = command_line("explain", "want", "--file", str(path), "-o", form)

    assert done.returncode == 0
    answer = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    assert answer["reason"] == "Unschedulable"
    assert [share["name"] for share in answer["shares"]] == ["org", "vision"]
    assert (answer["position"]["place"], answer["position"]["of"]) == (2, 3)
    (victim,) = answer["victims"]["victims"]
    assert victim["job"] == {"namespace": "default", "name": "b"}
    assert victim["objections"][0]["reason"] == "PriorityNotLower"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SHARED + "---" + SHARED, "cluster.yaml:1: one scenario is expected, 2 found"),
        ("nodes: [{name: a, gpu: 1}]", "cluster.yaml:1: nodes[0].gpu: unknown key"),
    ],
)
def test_a_file_that_is_not_one_scenario_ends_with_2(
    command_line: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)

    done = command_line("explain", "want", "--file", str(path))

    assert done.returncode == 2
    assert message in done.stderr


def test_many_victims_are_found_quickly() -> None:
    """Each of the 160 victims is needed; one plan without each of them would take long."""
    running = "\n".join(
        f"- {{name: old{i}, queue: q0, pods: [{{gpus: 1, state: Running, node: node{i // 8}}}]}}"
        for i in range(800)
    )
    cluster = f"""
nodes: [{{name: "node{{i}}", count: 100, gpus: 8}}]
queues: [{{name: q0, gpu: {{quota: 800}}}}]
jobs:
- {{name: wide, queue: q0, pods: [{{count: 20, gpus: 8}}]}}
{running}
"""
    scenario = scenario_of(cluster)
    clock = StepClock()

    with clock.running():
        answer = explained(scenario, "wide")

    assert clock() < 3.0
    assert "It would fit if 160 pods were evicted:" in answer


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if is_terminal else "0")

    with working("planning"):
        pass

    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("planning …" in captured.err) == is_terminal


STAGES = """
nodes:
- {name: small, gpus: 3}
jobs:
- name: lws
  runtime: 1m
  stageTimeout: 5m
  subGroups:
  - {name: leader, minMember: 1}
  - name: workers
    minMember: 2
    after: [{subGroup: leader, condition: Ready}]
    template: {gpus: 1}
  pods: [{gpus: 1, subGroup: leader, state: Running, node: small}]
- {name: other, pods: [{gpus: 1}]}
"""


def test_a_gang_shows_the_room_of_its_later_stages_and_until_when() -> None:
    cluster = scenario_of(STAGES)

    lines = explained(cluster, "lws").splitlines()
    kept, nothing = lines[lines.index("Its sub-groups:") + 3 :][:2]

    assert kept == (
        "Room for its later stage workers (2 pods) is kept on small until 00:04:00 UTC."
    )
    assert nothing == "None of its pods waits for the scheduler."


def test_a_gang_shows_its_sub_groups_with_their_pods() -> None:
    first, *rows = explained(scenario_of(STAGES), "lws").splitlines()[:4]

    assert first.endswith(": 1 of 1 pods are bound.")
    assert rows == [
        "Its sub-groups:",
        "  leader: 1 of 1 pods bound, at least 1 needed",
        "  workers: 0 of 0 pods bound, at least 2 needed, after leader is Ready",
    ]


def test_nested_sub_groups_are_a_tree() -> None:
    nested = """
    nodes: [{name: n, gpus: 1}]
    jobs:
    - name: sets
      minSubGroup: 1
      subGroups:
      - {name: a, minSubGroup: 1}
      - {name: a-left, parent: a, minMember: 1}
      - {name: a-right, parent: a}
      - {name: b, minMember: 0}
      pods: [{gpus: 2, subGroup: a-left}, {gpus: 2, subGroup: a-right}]
    """
    lines = explained(scenario_of(nested), "sets").splitlines()

    at = lines.index("Its sub-groups, at least 1 of 2 needed:")
    assert lines[at + 1 : at + 5] == [
        "  a: at least 1 of its 2 sub-groups needed",
        "    a-left: 0 of 1 pods bound, at least 1 needed",
        "    a-right: 0 of 1 pods bound, all needed",
        "  b: 0 of 0 pods bound, at least 0 needed",
    ]


def test_a_waiting_job_is_shown_with_the_room_kept_for_other_gangs() -> None:
    said = explained(scenario_of(STAGES), "other")

    assert (
        "Room is kept for later stages of other gangs:\n"
        "  default/lws, workers (2 pods), on small until 00:04:00 UTC"
    ) in said


def test_a_gang_shows_the_time_when_the_room_of_its_later_stages_was_released() -> None:
    cluster = scenario_of(STAGES.replace("runtime: 1m", "runtime: 6m"))

    assert (
        "No room is kept for its later stage workers (2 pods): its time is over "
        "(until 23:59:00 UTC)."
    ) in explained(cluster, "lws")


def test_a_group_of_the_grouper_shows_the_sources_of_its_values() -> None:
    cluster = scenario_of(STAGES)
    source = source_of(cluster)
    (group,) = [each for each in source.snapshot.groups if each.metadata.name == "lws"]
    sources = {"queue": "Job/train", "minMember": "JobSet/set", "topology": "Job/train"}
    group.metadata.annotations[SOURCES_ANNOTATION] = json.dumps(sources)

    lines = job_lines(explain(source, subject(source.snapshot, "lws", "default"), cluster.now))

    assert "Its values: queue, topology from Job/train; minMember from JobSet/set." in lines


EVICTED = """
now: 2026-01-01T01:00:00Z
nodes: [{name: n0, gpus: 8}]
queues: [{name: lent}, {name: owed, gpu: {quota: 8}}, {name: third}]
jobs:
- {name: before, namespace: team, queue: lent, pods: [{gpus: 2}]}
- {name: mine, queue: lent, pods: [{gpus: 2}]}
- {name: theirs, namespace: team, queue: lent, pods: [{gpus: 2}]}
- {name: unrelated, namespace: team, queue: lent, pods: [{gpus: 2}]}
- {name: claimant, queue: owed, pods: [{gpus: 8}]}
"""
AT = 1767229200.0
"""2026-01-01T01:00:00Z."""


def with_evictions(known_as: str = "claimant") -> tuple[Source, datetime]:
    """Return a cluster in which gangs were evicted for `claimant` of the namespace default.

    `known_as`: how the conditions name it.
    """
    cluster = scenario_of(EVICTED)
    source = source_of(cluster)
    groups = []
    for group in source.snapshot.groups:
        name, namespace = group.metadata.name, group.metadata.namespace
        queue = "third" if name == "unrelated" else "owed"
        record = EvictionRecord(
            "reclaim",
            room_reason("reclaim", Claimant("default", known_as, queue), namespace),
            2,
            AT,
        )
        condition = Condition(
            type="Evicted",
            status="False" if name == "theirs" else "True",
            reason="Reclaim",
            message=eviction_text(record),
            last_transition_time="2020-01-01T00:00:00Z" if name == "before" else timestamp(AT + 60),
        )
        conditions = [condition] if name != "claimant" else []
        status = msgspec.structs.replace(group.status, conditions=conditions)
        groups.append(msgspec.structs.replace(group, status=status))
    return replace(source, snapshot=replace(source.snapshot, groups=tuple(groups))), cluster.now


def test_an_evicted_gang_shows_the_time_action_and_queue_of_its_eviction() -> None:
    source, now = with_evictions()
    about = {
        name: "\n".join(job_lines(explain(source, subject(source.snapshot, name, namespace), now)))
        for name, namespace in (("mine", "default"), ("theirs", "team"), ("claimant", "default"))
    }

    when = "2 pods were evicted, the last at 2026-01-01T01:00:00Z"
    assert f"Evicted (Reclaim): {when}: reclaim for claimant (queue owed)." in about["mine"]
    recovered = "(it has had its minimum again since 2026-01-01T01:01:00Z)"
    assert f"Evicted (Reclaim): {when}: reclaim for queue owed {recovered}." in about["theirs"]
    assert "claimant" not in about["theirs"].split("Evicted")[1].split("\n")[0]
    assert "Evicted (" not in about["claimant"]


def test_a_gang_shows_the_gangs_evicted_for_it_or_for_its_queue() -> None:
    source, now = with_evictions()
    lines = job_lines(explain(source, subject(source.snapshot, "claimant", "default"), now))

    at = lines.index("Evicted for it, or in other namespaces for queue owed:")
    listed = [line.split(":")[0] for line in lines[at + 1 :] if " pods were evicted" in line]
    assert listed == ["  team/theirs", "  default/mine"]


def test_the_gangs_evicted_for_a_workload_are_found_by_its_name() -> None:
    source, _ = with_evictions(known_as="Job train")
    owner = OwnerReference(kind="Job", name="train", uid="f3ba2458-2f6c")
    name = "job-train-f3ba2458"
    meta = Meta(
        name=name,
        namespace="default",
        labels={MADE_BY_LABEL: MADE_BY_GROUPER},
        owner_references=[owner],
    )
    made = PodGroup(metadata=meta)
    claimant = JobKey("default", name, True)

    found = evicted_for(claimant, "owed", "2025", (*source.snapshot.groups, made))

    assert [str(each.job) for each in found] == ["team/theirs", "default/mine"]
    unknown = evicted_for(claimant, "owed", "2025", source.snapshot.groups)
    assert [str(each.job) for each in unknown] == ["team/theirs"]


def test_a_gang_with_claims_over_the_limit_is_shown_with_the_gpus_of_its_queue() -> None:
    cluster = scenario_of(
        """
        nodes: [{name: n}]
        queues: [{name: q, gpu: {limit: 4}}]
        deviceClasses:
        - {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}}
        resourceClaimTemplates:
        - apiVersion: resource.k8s.io/v1
          kind: ResourceClaimTemplate
          metadata: {name: one}
          spec: {spec: {devices: {requests:
            [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
        jobs: [{name: a, queue: q, pods: [{count: 5, cpu: "1", claims: [one]}]}]
        """
    )

    said = explained(cluster, "a")

    assert "holds 0 of its limit of 4 nvidia.com/gpu, and the job requests 5 more" in said
    assert "Its queue, in GPUs:" in said
    assert "CPU" not in said


def test_a_gang_over_the_limit_of_cores_is_shown_with_cores_and_gpus() -> None:
    cluster = scenario_of(
        """
        nodes: [{name: n, gpus: 8}]
        queues: [{name: q, gpu: {limit: 8}, cpu: {limit: "2"}, memory: {limit: 8Gi}}]
        jobs: [{name: a, queue: q, pods: [{count: 4, gpus: 1, cpu: "1", memory: 1Gi}]}]
        """
    )

    said = explained(cluster, "a")

    assert [line for line in said.splitlines() if line.startswith("Its queue")] == [
        "Its queue, in GPUs:",
        "Its queue, in CPU cores:",
    ]
