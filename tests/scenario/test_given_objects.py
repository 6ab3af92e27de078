"""The key `objects`, and the key `spec` of pods: objects as Kubernetes writes them."""

import json
import textwrap

import pytest

from bindery.api.yamlfile import FileError, parse
from bindery.kube.objects.watched import Pod
from bindery.scenario.creation import objects_of
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run

NODE = """
- apiVersion: v1
  kind: Node
  metadata: {name: n0}
  status:
    allocatable: {cpu: 8, memory: 32Gi, pods: 10, nvidia.com/gpu: 4}
    conditions: [{type: Ready, status: "True"}]
"""
GANG = """
- apiVersion: scheduling.bindery.dev/v1alpha1
  kind: PodGroup
  metadata: {name: train, namespace: team}
  spec: {minMember: 1}
- apiVersion: v1
  kind: Pod
  metadata:
    name: train-0
    namespace: team
    annotations: {scheduling.bindery.dev/pod-group: train}
    ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]
  spec:
    schedulerName: bindery
    priority: 50
    containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


def scenario_of(text: str) -> Scenario:
    (document,) = parse(textwrap.dedent(text), "file.yaml")
    return parse_scenario(document)


def objects(*parts: str, more: str = "") -> Scenario:
    return scenario_of("objects:" + "".join(part.rstrip() for part in parts) + "\n" + more)


def error(text: str) -> FileError:
    with pytest.raises(FileError) as caught:
        scenario_of(text)
    return caught.value


def test_objects_are_planned_beside_jobs() -> None:
    more = "jobs: [{name: b, pods: [{gpus: 2}]}]\nexpect: {counts: {train: {Running: 1}}}\n"

    result = run(objects(NODE, GANG, more=more))

    assert result.ok, result.failures
    assert {name: pod.node for name, pod in result.seen.pods.items()} == {
        "train-0": "n0",
        "b-0": "n0",
    }


def test_pods_of_one_name_are_distinguished_by_their_namespaces() -> None:
    more = "jobs: [{name: train, pods: [{gpus: 1}]}]\n"
    more += "expect: {pods: {train-0: {state: Running}, team/train-0: {state: Running, gpus: 2}}}\n"

    assert run(objects(NODE, GANG, more=more)).ok


def test_an_evicted_given_pod_is_recreated_without_its_records() -> None:
    more = """
config: {actions: [allocate, preempt]}
jobs: [{name: urgent, priority: inference, pods: [{gpus: 4}]}]
rounds: 3
expect: {pods: {urgent-0: {state: Running}, train-0: {state: Pending}}}
"""
    running = GANG.replace("schedulerName: bindery", "nodeName: n0\n    schedulerName: bindery")
    running += "  status: {phase: Running}\n"
    running = running.replace(
        "pod-group: train}", "pod-group: train, scheduling.bindery.dev/charged-queue: default}"
    )

    result = run(objects(NODE, running, more=more))

    assert result.ok, result.failures


def test_an_event_changes_a_given_node() -> None:
    more = "events: [{before: 1, node: {name: n0, ready: false}}]\nrounds: 2\n"
    more += "expect: {pods: {train-0: {state: Pending, reason: not ready}}}\n"

    result = run(objects(NODE, GANG, more=more))

    assert result.ok, result.failures


def test_an_unreadable_pod_is_skipped_and_named() -> None:
    broken = GANG.replace("priority: 50", "priority: high")

    result = run(objects(NODE, broken))

    assert not result.seen.pods
    (line,) = result.left_out
    assert line.startswith("Pod team/train-0 is left out: ")
    assert "$.spec.priority" in line


def test_an_unreadable_running_pod_keeps_its_room() -> None:
    broken = GANG.replace("priority: 50", "priority: high\n    nodeName: n0")
    more = "config: {actions: [allocate]}\njobs: [{name: b, pods: [{gpus: 4}]}]\n"

    result = run(objects(NODE, broken, more=more))

    assert "is read in part" in result.left_out[0]
    assert result.seen.pods["b-0"].state == "Pending"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("objects:\n- {kind: Node}\n", 2, "objects[0]: apiVersion: a text is expected"),
        ("objects:\n- apiVersion: v1\n  kind: Nod\n", 3, "objects[0].kind: the scheduler reads no"),
        (
            "objects:\n- apiVersion: batch/v2\n  kind: Job\n",
            2,
            "objects[0].apiVersion: batch/v2: of a Job, batch/v1 is read",
        ),
        (
            "objects:\n- apiVersion: v1\n  kind: Node\n  metadata: {}\n",
            4,
            "objects[0].metadata.name: this key is required",
        ),
        ("objects:" + NODE + NODE, 11, "objects[1].metadata.name: there is another Node n0"),
        ("objects:\n- 5\n", 2, "objects[0]: an object is expected"),
        ("objects:" + NODE + "nodes: [{name: n0}]\n", 8, "nodes[0].name: there is another node n0"),
        (
            "objects:" + NODE + "events: [{before: 1, node: {name: n0, gpuModel: A}}]\n",
            8,
            "events[0].node.gpuModel: a node under `objects` keeps it",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_key(text: str, line: int, message: str) -> None:
    found = error(text)

    assert found.message.startswith(message), found.message
    assert found.line == line


def test_a_line_of_json_is_read_like_yaml() -> None:
    item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ä\x7f", "labels": {"a": "é"}}}
    fast = f"objects:\n# a comment\n- {json.dumps(item)}\nname: x\n"
    slow = f"objects:\n# a comment\n\n- \n  {json.dumps(item)}\nname: x\n"

    assert parse(fast, "f")[0].data == parse(slow, "f")[0].data


def test_a_mistake_in_a_line_of_json_is_reported_with_its_line() -> None:
    twice = 'objects:\n- {"apiVersion": "v1", "kind": "Node", "kind": "Pod"}\n'

    assert str(error(twice)) == "file.yaml:2: kind: stands twice"


def test_a_text_that_looks_like_an_object_is_read_as_a_text() -> None:
    text = 'name: "a\n\nobjects:\n- {\\"a\\": 1}\n"\n'

    assert scenario_of(text).name == 'a\nobjects: - {"a": 1} '


def test_a_pod_has_the_fields_of_its_spec() -> None:
    scenario = scenario_of(
        """
        jobs:
        - name: a
          pods:
          - nodeSelector: {rack: r1}
            spec:
              hostNetwork: true
              containers: [{name: main, resources: {requests: {cpu: 2}}}]
        """
    )

    (pod,) = [item for item in objects_of(scenario) if isinstance(item, Pod)]

    assert pod.spec.host_network
    assert pod.spec.node_selector == {"rack": "r1"}
    assert pod.spec.scheduler_name == "bindery"
    assert pod.spec.containers[0].resources is not None
    assert pod.spec.containers[0].resources.requests == {"cpu": "2"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("gpus: 1, spec: {containers: []}", "spec.containers: the pod has gpus, which means the"),
        ("nodeSelector: {a: b}, spec: {nodeSelector: {}}", "spec.nodeSelector: the pod has node"),
        ("spec: {nodeName: n0}", "spec.nodeName: write node and state beside spec"),
        ("spec: {priorityClassName: train}", "spec.priorityClassName: write the priority of the"),
        ("spec: {schedulerName: other}", "spec.schedulerName: write schedulerName beside spec"),
        ("spec: {hostNetwork: maybe}", "spec: Expected `bool`, got `str` - at `$.hostNetwork`"),
    ],
)
def test_a_field_of_a_spec_that_another_key_sets_is_a_mistake(keys: str, message: str) -> None:
    found = error(f"jobs:\n- name: a\n  pods:\n  - {{{keys}}}\n")

    assert found.message.startswith(f"jobs[0].pods[0].{message}"), found.message
    assert found.line == 4
