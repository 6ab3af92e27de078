"""The commands that look at a cluster, on a real API server."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from test_command import bindery

from bindery.api.names import API_VERSION, NODE_POOL_LABEL, POD_GROUP_ANNOTATION
from bindery.controlplane.install import Installation
from bindery.controlplane.plane import ControlPlane

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Corner:
    """A namespace, and a name for a node, its pool, a queue and a gang that nobody else uses."""

    plane: ControlPlane
    namespace: str
    name: str

    def bindery(self, *arguments: str) -> str:
        done = bindery("--kubeconfig", str(self.plane.admin_kubeconfig), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def corner(
    control_plane: ControlPlane, installation: Installation, namespace: str
) -> Iterator[Corner]:
    """One node with two GPUs, and a gang of three that each want one; no scheduler runs."""
    name = f"cli-{secrets.token_hex(3)}"
    pool = {NODE_POOL_LABEL: name}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": pool}}
    queue = {
        "apiVersion": API_VERSION,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": {"gpu": {"limit": 6}}},
    }
    group = {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "labels": pool},
        "spec": {"minMember": 3, "queue": name},
    }
    pods = [_pod(name, index, namespace, pool) for index in range(3)]
    documents = [node, queue, group, *pods]
    control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    room = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    patch = json.dumps({"status": {**status, "capacity": room}})
    control_plane.kubectl("patch", "node", name, "--subresource=status", f"--patch={patch}")
    yield Corner(control_plane, namespace, name)
    control_plane.kubectl("delete", f"node/{name}", f"queues.scheduling.bindery.dev/{name}")


def _pod(gang: str, index: int, namespace: str, labels: dict[str, str]) -> dict[str, object]:
    limits = {"nvidia.com/gpu": "1", "cpu": "100m"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang}-{index}",
            "namespace": namespace,
            "labels": labels,
            "annotations": {POD_GROUP_ANNOTATION: gang},
        },
        "spec": {
            "schedulerName": "bindery",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


def test_get_shows_the_gangs_of_a_namespace(corner: Corner) -> None:
    heading, row = corner.bindery("get", "gangs", "-n", corner.namespace).splitlines()

    assert heading.split()[:6] == ["NAME", "QUEUE", "RUNNING", "BOUND", "MIN", "PODS"]
    assert row.split()[:6] == [corner.name, corner.name, "0", "0", "3", "3"]


def test_get_shows_queues_as_json(corner: Corner) -> None:
    rows = json.loads(corner.bindery("get", "queues", "-o", "json"))

    (row,) = (row for row in rows if row["name"] == corner.name)
    assert (row["gpu"], row["gangs"], row["state"]) == ("0/6", 1, "Open")


def test_get_says_when_there_is_nothing(corner: Corner) -> None:
    assert corner.bindery("get", "requests", "-n", corner.namespace) == (
        f"There are no requests in namespace {corner.namespace}.\n"
    )


def test_explain_says_what_the_scheduler_would(corner: Corner) -> None:
    answer = corner.bindery("explain", corner.name, "-n", corner.namespace)

    assert "0 of 3 pods are bound, at least 3 are needed" in answer
    assert "Held by: Unschedulable: 2 of 3 pods fit" in answer


def test_a_snapshot_runs_as_a_scenario(corner: Corner, tmp_path: Path) -> None:
    path = str(tmp_path / "snapshot.yaml")

    corner.bindery("snapshot", "-o", path, "--node-pool", corner.name)
    result = json.loads(corner.bindery("scenario", "run", "--json", path))

    assert result["ok"]
    gang = [result["pods"][f"{corner.name}-{index}"] for index in range(3)]
    assert all("2 of 3 pods fit" in pod["reason"] for pod in gang)


def test_version_names_the_server_and_the_installed_kinds(corner: Corner) -> None:
    _, server, resources = corner.bindery("version").splitlines()

    assert server.startswith("server: v1.")
    assert resources == f"resources: {API_VERSION} installed"
