"""Malformed scenarios: each mistake is reported with its file, line and key."""

from pathlib import Path

import pytest

from bindery.api.yamlfile import FileError
from bindery.scenario.files import UnsupportedError, read_scenarios
from bindery.scenario.format import Scenario
from tests.inlinescenarios import scenario_of


def read_one(tmp_path: Path, text: str) -> Scenario | FileError:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    (item,) = read_scenarios(path)
    return item


def problem(tmp_path: Path, text: str) -> str:
    """Return what is wrong with `text`, without the name of its file."""
    item = read_one(tmp_path, text)
    assert isinstance(item, FileError), item
    assert str(item).startswith(f"{tmp_path}/scenario.yaml:")
    return str(item).removeprefix(f"{tmp_path}/scenario.yaml:")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: a\nnodez: []\n", "2: nodez: unknown key"),
        ("nodes:\n- name: n\n  gpuz: 1\n", "3: nodes[0].gpuz:"),
        (
            "jobs:\n- name: a\n  pods:\n  - cpu: 1\n    gpu_fraction: 1\n",
            "5: jobs[0].pods[0].gpu_f",
        ),
        ("jobs:\n- name: a\n  pods:\n  - cpu: lots\n", "4: jobs[0].pods[0].cpu: 'lots' is not a K"),
        ("jobs:\n- name: a\n  pods:\n  - cpu: -1\n", "4: jobs[0].pods[0].cpu:"),
        ("jobs:\n- name: a\n  minMember: -1\n", "3: jobs[0].minMember:"),
        ("queues:\n- name: q\n  state: Shut\n", "3: queues[0].state:"),
        ("queues:\n- name: q\n  gpu: {limits: 3}\n", "3: queues[0].gpu.limits:"),
        ("nodes:\n- cpu: 1\n", "2: nodes[0].name: this key is required"),
        ("config:\n  actions: [alocate]\n", "2: config.actions[0]:"),
        ("config:\n  plugins:\n    nodeplacement: {gpu: tight}\n", "3: config.plugins.nodeplacem"),
        ("config:\n  plugins:\n    nodeplacement: {gpus: spread}\n", "3: config.plugins.nodepla"),
        ("events:\n- before: 2\n  advance: soon\n", "3: events[0].advance:"),
        ("events:\n- before: 2\n", "2: events[0]:"),
        ("faults:\n- {call: bindPod}\n", "2: faults[0].call:"),
        ("rounds: 0\n", "1: rounds:"),
        ("now: yesterday\n", "1: now:"),
        ("expect:\n  bindRequest: 1\n", "2: expect.bindRequest:"),
        ("jobs:\n- name: a\n  pods:\n  - {state: Running}\n", "4: jobs[0].pods[0]:"),
        ("jobs:\n- name: a\n  pods:\n  - {state: Binding}\n", "4: jobs[0].pods[0]:"),
        (
            "jobs:\n- name: a\n  pods:\n  - affinity:\n      nodeAffinity:\n        required: {}\n",
            "6: jobs[0].pods[0].affinity.nodeAffinity.required:",
        ),
        (
            "jobs:\n- name: a\n  pods:\n  - tolerations: [{key: k, effect: NoShedule}]\n",
            "4: jobs[0].pods[0].tolerations[0].effect:",
        ),
    ],
)
def test_an_invalid_key_is_reported_with_its_line(tmp_path: Path, text: str, place: str) -> None:
    assert problem(tmp_path, text).startswith(place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "jobs:\n- name: a\n  pods: [{}]\nexpect:\n  pods:\n    a-1: {state: Pending}\n",
            "6: expect.pods.a-1: there is no pod a-1; did you mean a-0?",
        ),
        (
            "jobs:\n- name: train\nexpect:\n  distinctNodes:\n    trian: 1\n",
            "5: expect.distinctNodes.trian: there is no job trian; did you mean train?",
        ),
        (
            "expect:\n  counts:\n    Bindng: 1\n",
            "3: expect.counts.Bindng: there is no state Bindng; did you mean Binding?",
        ),
        (
            "expect:\n  queues:\n    q9: {allocated: {gpu: 1}}\n",
            "3: expect.queues.q9: there is no queue q9",
        ),
        (
            "nodes:\n- {name: node0}\nevents:\n- before: 2\n  node: {name: node1, ready: false}\n",
            "5: events[0].node.name: there is no node node1; did you mean node0?",
        ),
        (
            "jobs:\n- name: a\n  priority: urgent\n",
            "3: jobs[0].priority: there is no priority class urgent",
        ),
        (
            'nodes:\n- {name: node1}\n- {name: "node{i}", count: 2}\n',
            "3: nodes[1].name: there is another node node1",
        ),
        (
            "jobs:\n- {name: a}\n- {name: a, namespace: other}\n",
            "3: jobs[1].name: there is another job a",
        ),
        (
            "hyperNodes:\n- {name: s0, members: [n0]}\n- {name: s0, tier: 2}\n",
            "3: hyperNodes[1].name: there is another HyperNode s0",
        ),
        (
            "topologies:\n- {name: dc, levels: [rack]}\n- {name: dc, levels: [block]}\n",
            "3: topologies[1].name: there is another Topology dc",
        ),
        (
            "config:\n  actions: [allocate, stale_gang_eviction]\n",
            (
                "2: config.actions[1]: there is no action stale_gang_eviction; "
                "did you mean stalegangeviction?"
            ),
        ),
        (
            "config:\n  plugins:\n    node_lock: {vendors: [kunlun]}\n",
            "3: config.plugins.node_lock: there is no plugin node_lock; did you mean hami?",
        ),
        (
            "config:\n  weights: {Fragmentation: 2}\n",
            (
                "2: config.weights.Fragmentation: there is no plugin Fragmentation; "
                "did you mean fragmentation?"
            ),
        ),
        (
            "config:\n  withoutPlugins: [numa, gpu_sharing]\n",
            "2: config.withoutPlugins[1]: there is no plugin gpu_sharing; did you mean gpusharing?",
        ),
    ],
)
def test_the_most_similar_name_is_suggested_for_an_unknown_name(
    tmp_path: Path, text: str, message: str
) -> None:
    assert problem(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "config:\n  usage:\n    source: prometheus\n    prometheus: {address: http://p}\n",
            "3: not supported yet: config.usage.source: prometheus",
        ),
        (
            "config:\n  plugins:\n    tomorrow: {}\n",
            "3: not supported yet: config.plugins.tomorrow",
        ),
        (
            "jobs:\n- name: a\n  pods:\n  - initContainers: [{gpuMemory: 5000}]\n",
            "4: not supported yet: jobs[0].pods[0].initContainers[0].gpuMemory",
        ),
        (
            "config:\n  plugins:\n    scalingpods: {}\n",
            "3: not supported yet: config.plugins.scalingpods",
        ),
        (
            "config:\n  withoutPlugins: [tomorrow]\n",
            "2: not supported yet: config.withoutPlugins: tomorrow",
        ),
        (
            "nodes:\n- name: n\n  devices:\n  - {id: d0, healthy: false}\n",
            "4: not supported yet: nodes[0].devices[0].healthy",
        ),
    ],
)
def test_a_key_without_behaviour_is_not_supported_yet(
    tmp_path: Path, text: str, message: str
) -> None:
    assert problem(tmp_path, text) == message
    assert isinstance(read_one(tmp_path, text), UnsupportedError)


ONE_ZONE = "nodes: [{name: n, numa: {zones: [{cpus: 0-3}]}}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "nodes:\n- name: n\n  numa: {zones: [{cpus: 0-3}, {cpus: 3-7}]}\n",
            "3: nodes[0].numa: a CPU is in two zones",
        ),
        (
            "nodes:\n- name: n\n  gpus: 2\n  numa: {zones: [{gpus: [0, 2]}]}\n",
            "4: nodes[0].numa.zones[0].gpus: the node has 2 GPUs, numbered from 0",
        ),
        (
            ONE_ZONE + "jobs:\n- name: a\n  pods:\n  - {state: Running, node: n, numa: [1]}\n",
            "5: jobs[0].pods[0].numa: node n has 1 NUMA zones, numbered from 0",
        ),
        (
            f"nodes:\n- name: n\n  numa: {{zones: [{', '.join(['{}'] * 9)}]}}\n",
            "3: nodes[0].numa.zones: Tuple should have at most 8 items after validation, not 9",
        ),
        (
            "nodes:\n- name: n\n  numa:\n    zones: [{cpus: 0-99999999}]\n",
            "4: nodes[0].numa.zones[0].cpus: 0-99999999 has too large a number",
        ),
    ],
)
def test_zones_that_contradict_the_node_are_reported(
    tmp_path: Path, text: str, message: str
) -> None:
    assert problem(tmp_path, text) == message


def test_keys_without_behaviour_may_have_their_default_value(tmp_path: Path) -> None:
    item = read_one(
        tmp_path,
        """
        origin: somewhere
        needs: [nothing]
        volumes: []
        hyperNodes: []
        topologies: [{name: dc, levels: [rack]}]
        nodes:
        - name: n
          devices: [{id: d0, healthy: true, cordoned: false, shares: 10}, {id: d1}]
          numa: {policy: none}
        queues:
        - name: q
          gpu: {quota: 0, weight: 0, limit: 4}
          cpu: {quota: -1, weight: 1, limit: -1}
          preemptMinRuntime: 0s
          reclaimable: true
        jobs:
        - name: a
          priority: train
          preemptible: true
          roles: {}
          topology: {}
          preemptionDelay: 0s
          spreadDevices: false
          pods:
          - {gpuDevices: 1, gpuFraction: 0, claims: [], gpuSelector: {}}
          - {preemptionPolicy: PreemptLowerPriority}
        """,
    )

    assert isinstance(item, Scenario), item
    assert item.nodes[0].gpu_count == 2


def test_a_malformed_document_does_not_hide_the_others_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "three.yaml"
    path.write_text("name: first\n---\nnmae: second\n---\nname: third\n")

    first, second, third = read_scenarios(path)

    assert isinstance(first, Scenario)
    assert isinstance(second, FileError)
    assert second.line == 3
    assert isinstance(third, Scenario)
    assert third.name == "third"


@pytest.mark.parametrize(
    ("text", "line"), [("a: [1\nb: 2\n", 2), ("", 1), ("- just\n- a list\n", 1), ("{a: b: c}", 1)]
)
def test_a_file_without_a_scenario_is_an_error(tmp_path: Path, text: str, line: int) -> None:
    item = read_one(tmp_path, text)

    assert isinstance(item, FileError)
    assert item.line == line


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    (item,) = read_scenarios(tmp_path / "missing.yaml")

    assert isinstance(item, FileError)
    assert "cannot be read" in str(item)


def test_a_float_is_read_as_the_written_decimal(tmp_path: Path) -> None:
    item = read_one(tmp_path, "jobs:\n- name: a\n  pods: [{cpu: 0.1, memory: 100M}]\n")

    assert isinstance(item, Scenario)
    assert item.jobs[0].pods[0].cpu == "0.1"


def test_a_counter_in_the_node_of_a_pod_is_refused_with_advice() -> None:
    with pytest.raises(FileError, match=r"node n\{i\}: \{i\} counts in names of nodes and jobs"):
        scenario_of(
            """
            nodes: [{name: "n{i}", count: 2, gpus: 1}]
            jobs:
            - {name: a, pods: [{count: 2, gpus: 1, state: Running, node: "n{i}"}]}
            """
        )
