"""Rounds, settling, and the fields of a result."""

import textwrap

from bindery.api.yamlfile import parse
from bindery.scenario.files import parse_scenario
from bindery.scenario.runner import Result, run

NODE = "nodes: [{name: node0, gpus: 2}]\n"


def play(text: str) -> Result:
    (document,) = parse(NODE + textwrap.dedent(text), "inline.yaml")
    return run(parse_scenario(document))


def test_the_first_match_ends_the_rounds() -> None:
    result = play(
        """
        jobs: [{name: a, pods: [{gpus: 1}]}]
        rounds: 5
        expect: {pods: {a-0: {state: Running}}}
        """
    )

    assert result.ok
    assert result.cycles == 1


def test_an_expectation_that_never_holds_fails_after_all_rounds() -> None:
    result = play(
        """
        jobs: [{name: a, pods: [{gpus: 3}]}]
        rounds: 4
        expect: {pods: {a-0: {state: Running}}}
        """
    )

    assert result.cycles == 4
    assert len(result.failures) == 1
    assert result.failures[0].startswith("pod a-0: state is Pending, expected Running (Unsched")


def test_nothing_is_compared_before_the_last_event() -> None:
    result = play(
        """
        jobs: [{name: a, pods: [{gpus: 1}]}]
        events: [{before: 3, fail: [a-0]}]
        expect: {pods: {a-0: {state: Running}}}
        """
    )

    assert result.cycles == 3
    assert not result.ok


def test_a_change_after_the_match_fails_the_settling() -> None:
    result = play(
        """
        jobs:
        - {name: old, recreate: false, pods: [{gpus: 2, state: Releasing, node: node0}]}
        - {name: new, pods: [{gpus: 1}]}
        settle: 3
        expect: {pods: {new-0: {state: Pipelined}}}
        """
    )

    assert result.cycles == 2
    assert result.failures == (
        "cycle 2, after the match: the scheduler acted 1 times",
        "cycle 2, after the match: pod new-0 was Pending on no node, is Running on node0",
    )


def test_a_pod_that_starts_after_the_match_is_no_oscillation() -> None:
    result = play(
        """
        jobs: [{name: a, pods: [{gpus: 1}]}]
        settle: 3
        expect: {pods: {a-0: {state: Binding}}}
        """
    )

    assert result.ok
    assert result.cycles == 4


def test_the_clock_advances_by_one_second_a_cycle_and_by_events() -> None:
    waits_five_seconds = """
        config: {bindRequest: {backoffLimit: 0}, failedNodeCooldownSeconds: 20}
        jobs: [{name: a, pods: [{gpus: 1}]}]
        faults: [{call: bind, pod: a-0}]
        rounds: 30
        expect: {pods: {a-0: {state: Running}}}
        """
    advances = """
        events: [{before: 3, advance: 10s}]
        """

    assert play(waits_five_seconds).cycles == 6
    assert play(waits_five_seconds + advances).cycles == 3


def test_a_result_has_the_documented_fields() -> None:
    result = play(
        """
        name: shape
        queues: [{name: q0, gpu: {weight: 1, limit: 1}}]
        jobs:
        - {name: a, queue: q0, pods: [{gpus: 1, cpu: 500m, memory: 1G}]}
        - {name: b, queue: q0, pods: [{gpus: 1}]}
        """
    )

    assert result.to_wire("file.yaml") == {
        "file": "file.yaml",
        "name": "shape",
        "ok": True,
        "cycles": 1,
        "pods": {
            "a-0": {"state": "Binding", "node": "node0", "gpus": 1, "reason": ""},
            "b-0": {
                "state": "Pending",
                "node": "",
                "gpus": 1,
                "reason": "OverLimit: queue q0 holds 1 of its limit of 1 nvidia.com/gpu, "
                "and the job requests 1 more",
            },
        },
        "queues": {
            "q0": {
                "fairShare": {"gpu": 1.0, "cpu": 0.5, "memory": 1e9},
                "allocated": {"gpu": 1.0, "cpu": 0.5, "memory": 1e9},
            }
        },
        "failures": [],
    }


def test_failures_show_the_actual_and_the_expected_value() -> None:
    result = play(
        """
        queues: [{name: q0}]
        jobs: [{name: a, queue: q0, pods: [{count: 2, gpus: 1}]}]
        expect:
          pods:
            a-0: {state: [Pending, Gated], node: node7, gpus: 2}
            a-1: {reason: full}
          counts: {Binding: 1, a: {Pending: 2}}
          queues: {q0: {allocated: {gpu: 1}}}
          distinctNodes: {a: 2}
          domainCounts: {a: {kubernetes.io/hostname: [1, 1]}}
          bindRequests: 2
          evictions: 1
          unchanged: true
        """
    )

    assert result.failures == (
        "pod a-0: state is Binding, expected Pending or Gated",
        "pod a-0: node is node0, expected node7",
        "pod a-0: gpus is 1, expected 2",
        "pod a-1: reason is '', expected to contain 'full'",
        "pods that are Binding: 2, expected 1",
        "pods of a that are Pending: 0, expected 2",
        "queue q0: allocated gpu is 2, expected 1",
        "job a: on 1 nodes, expected 2",
        "job a: pods per kubernetes.io/hostname are [2], expected [1, 1]",
        "evictions: 0, expected 1",
        "bindRequests: 1, expected 2",
        "actions: 1, expected none",
    )


def test_statements_of_two_namespaces_may_have_one_id() -> None:
    now = "2026-01-01T00:00:00Z"
    objects = "".join(
        f"""
        - apiVersion: v1
          kind: Pod
          metadata: {{name: p, namespace: {namespace}, uid: {namespace}}}
          spec: {{schedulerName: bindery, containers: [{{name: c}}]}}
        - apiVersion: scheduling.bindery.dev/v1alpha1
          kind: BindRequest
          metadata: {{name: request, namespace: {namespace}, creationTimestamp: {now}}}
          spec:
            statements:
            - id: one
              pods: [{{podName: p, podUID: {namespace}, selectedNode: node0}}]
        """.rstrip()
        for namespace in ("a", "b")
    )

    result = play(
        f"""
        objects:{objects}
        expect:
          counts: {{Running: 2}}
          bindRequests: 0
        """
    )

    assert result.failures == ()
    assert result.left_out == ()
    assert result.cycles == 1


def test_a_pod_without_a_node_that_is_being_deleted_goes_after_the_first_cycle() -> None:
    result = play(
        """
        objects:
        - apiVersion: v1
          kind: Pod
          metadata: {name: p, namespace: a, deletionTimestamp: "2026-01-01T00:00:00Z"}
          spec: {schedulerName: bindery, containers: [{name: c}]}
        rounds: 3
        expect: {counts: {Releasing: 0}}
        """
    )

    assert result.ok
    assert result.cycles == 1
    assert result.seen.pods == {}
