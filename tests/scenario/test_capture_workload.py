"""A snapshot has the typical workload, so that it gives the plan of the cluster."""

from dataclasses import replace
from typing import Any

import msgspec

from bindery.kube.objects.watched import Pod
from bindery.scenario.beginning import snapshot_of
from bindery.scenario.capture import capture
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run
from tests.inlinescenarios import scenario_of

CLUSTER = """
nodes:
- {name: z, gpus: 120, cpu: "500", pods: 500}
- {name: a, gpus: 4, labels: {model: A100}}
- {name: b, gpus: 4}
jobs:
- {name: pairs, pods: [{count: COUNT, gpus: 2, cpu: "1", state: Running, node: z}]}
- {name: on-a, pods: [{gpus: 1, state: Running, node: a}]}
- {name: on-b, pods: [{gpus: 2, state: Running, node: b}]}
- {name: p, pods: [{gpus: 1, cpu: "1", nodeSelector: {}}]}
"""


def captured(count: int) -> dict[str, Any]:
    scenario = scenario_of(CLUSTER.replace("COUNT", str(count)))
    return capture(snapshot_of(scenario), scenario.now)


def node_of(text: dict[str, Any]) -> str:
    return run(Scenario.model_validate(text)).seen.pods["p-0"].node


def test_the_plan_of_a_snapshot_is_that_of_the_cluster() -> None:
    scenario = scenario_of(CLUSTER.replace("COUNT", "50"))
    written = capture(snapshot_of(scenario), scenario.now)

    assert run(scenario).seen.pods["p-0"].node == node_of(written) == "a"
    # Without the workload, a snapshot of so few pods with GPUs would be packed as before.
    fewer = captured(20)
    assert "config" not in fewer
    assert node_of(fewer) == "b"
    fewer["config"] = written["config"]
    assert node_of(fewer) == "a"


def test_selectors_affinity_and_tolerations_of_kinds_are_written_as_they_are_read() -> None:
    scenario = scenario_of(
        """
nodes: [{name: n, gpus: 200, cpu: "500", pods: 500, gpuMemory: 1000}]
jobs:
- name: a
  pods:
  - count: 60
    gpuFraction: 0.25
    gpuDevices: 2
    cpu: 1500m
    nodeSelector: {model: A100}
    tolerations: [{key: team, operator: Exists, effect: NoSchedule}]
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: zone, operator: In, values: [z1, z2]}]
"""
    )

    written = capture(snapshot_of(scenario), scenario.now)

    ((kind,)) = written["config"]["plugins"]["fragmentation"]["workload"]
    weight = kind.pop("weight")
    assert weight > 0
    assert kind == {
        "cpu": "1500m",
        "gpus": 0.25,
        "devices": 2,
        "nodeSelector": {"model": "A100"},
        "requiredAffinity": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1", "z2"]}]}
            ]
        },
        "tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}],
    }
    assert run(Scenario.model_validate(written)).ok


def test_pods_with_other_creation_times_are_weighted_as_in_the_cluster() -> None:
    scenario = scenario_of(CLUSTER.replace("COUNT", "60"))
    seen = snapshot_of(scenario)
    old = tuple(
        dated(pod, "2025-06-01T00:00:00Z") if "pairs" in pod.metadata.name else pod
        for pod in seen.pods
    )
    recent = capture(seen, scenario.now)["config"]["plugins"]["fragmentation"]["workload"]
    aged = capture(replace(seen, pods=old), scenario.now)
    (first, *_) = aged["config"]["plugins"]["fragmentation"]["workload"]

    assert recent[0]["gpus"] == 2
    assert first["gpus"] == 1


def dated(pod: Pod, created: str) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, creation_timestamp=created)
    return msgspec.structs.replace(pod, metadata=meta)
