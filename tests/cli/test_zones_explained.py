"""`bindery explain` and `bindery whatif` about nodes that align pods to NUMA zones."""

import json
from pathlib import Path

from bindery.answers.explanation import explain
from bindery.answers.subjects import subject
from bindery.cli.text.gang import job_lines
from tests.commandline import CommandLine
from tests.inlinescenarios import scenario_of, source_of

NODES = """
nodes:
- name: split
  gpus: 2
  numa: {policy: single-numa-node, zones: [{cpus: 0-1, memory: 4Gi, gpus: [0]}, {cpus: 2-3, memory: 4Gi, gpus: [1]}]}
- name: used
  gpus: 2
  numa: {policy: single-numa-node, zones: [{cpus: 0-7, memory: 4Gi, gpus: [0, 1]}, {cpus: 8-15, memory: 4Gi}]}
jobs:
- {name: runs, preemptible: false, recreate: false, pods: [{gpus: 1, cpu: "6", memory: 1Gi, qos: Guaranteed, state: Running, node: used, numa: [0]}]}
"""  # noqa: E501
WAITS = """
- {name: pair, pods: [{gpus: 1, cpu: "3", memory: 1Gi, qos: Guaranteed}]}
"""

TWO_PODS = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  schedulerName: bindery
  containers:
  - name: main
    resources: {limits: {cpu: "2", memory: 1Gi, nvidia.com/gpu: GPUS}}
"""


def test_explain_shows_the_missing_resources_in_the_zones_of_each_node() -> None:
    cluster = scenario_of(NODES + WAITS)
    source = source_of(cluster)

    told = "\n".join(
        job_lines(explain(source, subject(source.snapshot, "pair", "default"), cluster.now))
    )

    lacking = "no single NUMA zone has 3 free CPUs, 1Gi of memory and 1 nvidia.com/gpu"
    assert f"1  have too small NUMA zones ({lacking})" in told
    assert f"1  cannot align it to their NUMA zones ({lacking})" in told


def test_whatif_shows_the_zones_of_each_pod(tmp_path: Path, command_line: CommandLine) -> None:
    cluster, submitted = tmp_path / "cluster.yaml", tmp_path / "submitted.yaml"
    cluster.write_text(NODES)
    pods = [TWO_PODS.replace("NAME", name).replace("GPUS", "1") for name in "abc"]
    submitted.write_text("---".join(pods))

    shown = command_line("whatif", str(submitted), "--file", str(cluster)).stdout

    assert [line.strip() for line in shown.splitlines() if "zone" in line] == [
        "used: a (NUMA zone 0)",
        "split: b (NUMA zone 0)",
        "split: c (NUMA zone 1)",
    ]


def test_whatif_places_pods_one_after_another_in_zones(
    tmp_path: Path, command_line: CommandLine
) -> None:
    cluster, submitted = tmp_path / "cluster.yaml", tmp_path / "submitted.yaml"
    cluster.write_text(NODES)

    def asked(*gpus: int) -> list[bool]:
        pods = [
            TWO_PODS.replace("NAME", f"p{index}").replace("GPUS", str(count))
            for index, count in enumerate(gpus)
        ]
        submitted.write_text("---".join(pods))
        done = command_line("whatif", str(submitted), "--file", str(cluster), "-o", "json")
        return [job["runs"] for job in json.loads(done.stdout)["jobs"]]

    assert asked(1, 1, 1) == [True, True, True]
    assert asked(2) == [False]
    assert asked(1, 1) == [True, True]
