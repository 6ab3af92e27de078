"""`bindery whatif` for pods with claims that controllers create first, as in the examples."""

from pathlib import Path

import pytest

from tests.commandline import CommandLine

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples" / "devices").glob("*.yaml"))
CLUSTER = ROOT / "examples" / "scenarios" / "devices.yaml"

ONE_VOLUME_A_NODE = """
nodes: [{name: "node{i}", count: 2}]
volumes:
- kind: StorageClass
  metadata: {name: ssd, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
  provisioner: csi.example.com
  volumeBindingMode: WaitForFirstConsumer
- {kind: CSINode, metadata: {name: node0}, spec: &one {drivers: [{name: csi.example.com,
    allocatable: {count: 1}}]}}
- {kind: CSINode, metadata: {name: node1}, spec: *one}
"""

STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      schedulerName: bindery
      containers: [{name: main}]
      volumes: [{name: data, emptyDir: {}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: mine}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: bindery
  containers: [{name: main}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: mine}}]
"""

SCRATCH = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: bindery
  containers: [{name: main}]
  volumes: [{name: data, ephemeral: {volumeClaimTemplate: {spec: {accessModes: all}}}}]
"""


def files(directory: Path, manifest: str) -> list[str]:
    """Write both files; return the command's arguments."""
    cluster, job = directory / "cluster.yaml", directory / "job.yaml"
    cluster.write_text(f"name: one\n{ONE_VOLUME_A_NODE}")
    job.write_text(manifest)
    return ["whatif", str(job), "--file", str(cluster)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_with_devices_runs_on_a_node_with_devices(
    command_line: CommandLine, example: Path
) -> None:
    ended = command_line("whatif", str(example), "--file", str(CLUSTER))

    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_claims_of_a_stateful_set_get_the_default_class_and_count_towards_limits(
    command_line: CommandLine, tmp_path: Path
) -> None:
    ended = command_line(*files(tmp_path, STATEFUL_SET))

    assert ended.returncode == 0, "a StatefulSet has the minimum 1"
    assert "StatefulSet default/web (queue default) runs: 2 of 3 pods placed" in ended.stdout
    assert "0/2 nodes are available: 2 exceed max volume count" in ended.stdout


def test_a_claim_in_the_same_file_is_used(command_line: CommandLine, tmp_path: Path) -> None:
    ended = command_line(*files(tmp_path, CLAIM))

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (SCRATCH, "Pod p: Expected `array`, got `str` - at `$.accessModes`"),
        (
            STATEFUL_SET.replace("metadata: {name: data}", "metadata: {}"),
            "volumeClaimTemplates[0].metadata.name: this key is required",
        ),
    ],
    ids=["an ephemeral volume", "a claim template without a name"],
)
def test_an_unusable_template_is_an_error_with_its_place_and_reason(
    command_line: CommandLine, tmp_path: Path, manifest: str, said: str
) -> None:
    ended = command_line(*files(tmp_path, manifest))

    assert ended.returncode == 2
    assert said in ended.stderr


RESTARTS = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: bindery
  containers:
  - name: main
    image: busybox
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]
"""
NEEDS_A_FEATURE = """
nodes: [{name: n0}, {name: n1}]
jobs:
- {name: train, pods: [{cpu: 1, requiredFeatures: [UserNamespacesHostNetworkSupport]}]}
"""


def test_whatif_and_explain_name_the_feature_that_nodes_do_not_declare(
    command_line: CommandLine, tmp_path: Path
) -> None:
    cluster, pod = tmp_path / "cluster.yaml", tmp_path / "pod.yaml"
    cluster.write_text(NEEDS_A_FEATURE)
    pod.write_text(RESTARTS)

    asked = command_line("whatif", str(pod), "--file", str(cluster))
    explained = command_line("explain", "train", "--file", str(cluster))

    assert "2 do not declare feature RestartAllContainersOnContainerExits" in asked.stdout
    assert "2  do not declare feature UserNamespacesHostNetworkSupport" in explained.stdout
