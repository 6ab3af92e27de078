"""The commands that read a cluster, on a real API server, as a user with read access only."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from bindery.api.names import API_VERSION, NODE_POOL_LABEL, POD_GROUP_ANNOTATION
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests import readers
from tests.cli.test_command import bindery
from tests.cli.test_command_imports import PLANNING, TALKING, imported

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Corner:
    """A namespace, and a name for a node, its pool, a queue and a gang, for one test alone."""

    plane: ControlPlane
    reader: Path
    namespace: str
    name: str

    def bindery(self, *arguments: str, ends_with: int = 0) -> str:
        done = bindery("--kubeconfig", str(self.reader), *arguments)
        assert done.returncode == ends_with, done.stderr
        return done.stdout

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of everything in the corner, by UID."""
        names = ("pods", "podgroups", "bindrequests", "events", "leases", "configmaps")
        text = self.plane.kubectl("get", ",".join(names), f"--namespace={self.namespace}", "-ojson")
        queue = self.plane.kubectl("get", f"queues.scheduling.bindery.dev/{self.name}", "-ojson")
        items = [*json.loads(text)["items"], json.loads(queue)]
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}


@pytest.fixture(scope="module")
def reader(
    control_plane: ControlPlane,
    installation: Installation,  # brings the kinds
) -> Iterator[Path]:
    with readers.reader(control_plane) as path:
        yield path


@pytest.fixture
def corner(control_plane: ControlPlane, reader: Path, namespace: str) -> Iterator[Corner]:
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
    yield Corner(control_plane, reader, namespace, name)
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
    shown = corner.bindery("get", "gangs", "-n", corner.namespace)
    heading, row = shown.splitlines()

    by_short_name = corner.bindery("get", "pg", "-n", corner.namespace)
    assert by_short_name.split()[:-1] == shown.split()[:-1]  # the last is its age

    assert heading.split()[:7] == ["NAME", "QUEUE", "STATE", "RUNNING", "BOUND", "MIN", "PODS"]
    assert row.split()[:7] == [corner.name, corner.name, "Waiting", "0", "0", "3", "3"]


@pytest.fixture
def shared_request(corner: Corner) -> str:
    """A request with two gangs of the corner, the first of them bound; return the name."""
    pods = [
        {"podName": f"{gang}-0", "podUID": f"uid-{gang}", "selectedNode": corner.name}
        for gang in ("done", "waits")
    ]
    statements = [
        {"id": pod["podUID"], "podGroup": {"name": pod["podName"][:-2], "uid": "0"}, "pods": [pod]}
        for pod in pods
    ]
    summary = {"gangs": "done,waits", "pods": 2, "nodes": corner.name}
    request = {
        "apiVersion": API_VERSION,
        "kind": "BindRequest",
        "metadata": {"name": "shared", "namespace": corner.namespace},
        "spec": {"statements": statements, "summary": summary},
    }
    corner.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(request))
    outcomes = [
        {"id": "uid-done", "phase": "Succeeded", "reason": "Bound"},
        {"id": "uid-waits", "phase": "Pending", "reason": "Preparing", "failedAttempts": 1},
    ]
    of_all = {"phase": "Binding", "reason": "Preparing", "boundCount": 1, "failedAttempts": 1}
    status = json.dumps({"status": {**of_all, "statements": outcomes}})
    where = f"--namespace={corner.namespace}"
    patch = ("--subresource=status", "--type=merge", f"--patch={status}")
    corner.plane.kubectl("patch", "bindrequest", "shared", where, *patch)
    return "shared"


def test_get_shows_each_gang_of_a_request(corner: Corner, shared_request: str) -> None:
    asked = ("get", "requests", "-n", corner.namespace)

    heading, done, waits = corner.bindery(*asked).splitlines()

    columns = ["NAME", "GANG", "PHASE", "BOUND", "NODES", "ATTEMPTS", "AGE", "REASON"]
    assert heading.split() == columns
    assert done.split()[:6] == [shared_request, "done", "Succeeded", "1/1", corner.name, "0"]
    assert waits.split()[:6] == [shared_request, "waits", "Pending", "0/1", corner.name, "1"]
    (row,) = yaml.safe_load(corner.bindery(*asked, "--gang", "waits", "-o", "yaml"))
    assert (row["gang"], row["reason"], row["statement"]) == ("waits", "Preparing", "uid-waits")
    shown = corner.bindery(*asked, "--gang", "nobody")
    assert shown == f"There are no requests of gang nobody in namespace {corner.namespace}.\n"


def test_kubectl_shows_a_request_in_one_line(corner: Corner, shared_request: str) -> None:
    table = corner.plane.kubectl("get", "bindrequests", f"--namespace={corner.namespace}")

    heading, line = table.splitlines()
    columns = ["PHASE", "GANGS", "PODS", "BOUND", "NODES", "ATTEMPTS", "REASON", "AGE"]
    assert heading.split() == ["NAME", *columns]
    values = [shared_request, "Binding", "done,waits", "2", "1", corner.name, "1", "Preparing"]
    assert line.split()[:-1] == values


def test_the_namespace_is_the_contexts_unless_one_is_given(corner: Corner, tmp_path: Path) -> None:
    inside = _at_home(corner, tmp_path)

    assert corner.name in inside.bindery("get", "gangs")
    assert f"PodGroup {corner.namespace}/{corner.name}" in inside.bindery("explain", corner.name)
    assert corner.name not in inside.bindery("get", "gangs", "-n", "default")
    assert corner.name not in corner.bindery("get", "gangs")


def test_whatif_submits_into_the_namespace_of_the_context(corner: Corner, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    pod = _pod("single", 0, corner.namespace, {NODE_POOL_LABEL: corner.name})
    meta = pod["metadata"]
    assert isinstance(meta, dict)
    manifest.write_text(yaml.safe_dump({**pod, "metadata": {**meta, "namespace": None}}))

    answer = _at_home(corner, tmp_path).bindery("whatif", str(manifest), ends_with=1)

    assert f"{corner.namespace}/single (queue default) waits" in answer


def test_whatif_refuses_a_missing_namespace(corner: Corner, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nosuch"}}
    pod = _pod("single", 0, "nosuch", {NODE_POOL_LABEL: corner.name})
    path.write_text(yaml.safe_dump(pod))

    refused = bindery("--kubeconfig", str(corner.reader), "whatif", str(path))
    path.write_text(yaml.safe_dump_all([made, pod]))
    answer = corner.bindery("whatif", str(path), ends_with=1)

    assert refused.returncode == 2
    assert "namespace nosuch does not exist: create it, or name another with -n" in refused.stderr
    assert "nosuch/single (queue default) waits" in answer


def _at_home(corner: Corner, directory: Path) -> Corner:
    """Return `corner` with a kubeconfig whose context has its namespace."""
    document = yaml.safe_load(corner.reader.read_text())
    document["contexts"][0]["context"]["namespace"] = corner.namespace
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return replace(corner, reader=path)


def test_get_shows_queues_as_json(corner: Corner) -> None:
    rows = json.loads(corner.bindery("get", "queues", "-o", "json"))

    (row,) = (row for row in rows if row["name"] == corner.name)
    # No scheduler runs here, so nobody has counted the gang.
    assert (row["gpu"], row["waiting"], row["state"]) == ("0/6", 0, "Open")


@pytest.mark.parametrize(
    ("command", "libraries", "packages"),
    [
        ("version", TALKING, "answers api cli kube"),
        ("get gangs", f"{TALKING} rich", "answers api cli kube"),
        ("get requests", f"{TALKING} rich", "answers api cli kube"),
        ("get queues", f"{TALKING} rich numpy", "answers api cli kube scheduler"),
    ],
)
def test_a_table_needs_neither_the_models_nor_the_engine(
    corner: Corner, command: str, libraries: str, packages: str
) -> None:
    found = imported("--kubeconfig", str(corner.reader), *command.split())

    assert found == (set(libraries.split()), set(packages.split()))


def test_explain_imports_neither_scenarios_nor_the_scheduler_process(
    corner: Corner,
) -> None:
    about = ("explain", corner.name, "-n", corner.namespace)

    found = imported("--kubeconfig", str(corner.reader), *about)

    packages = {"answers", "api", "cli", "kube", "nodecore", "scheduler"}
    assert found == ({*TALKING.split(), *PLANNING.split()}, packages)


def test_get_reports_an_empty_list(corner: Corner) -> None:
    assert corner.bindery("get", "requests", "-n", corner.namespace) == (
        f"There are no requests in namespace {corner.namespace}.\n"
    )


def test_explain_gives_the_reason_of_the_scheduler(corner: Corner) -> None:
    answer = corner.bindery("explain", corner.name, "-n", corner.namespace)

    assert "0 of 3 pods are bound, at least 3 are needed" in answer
    assert "Held by: Unschedulable: 2 of 3 pods fit" in answer


def test_explain_shows_a_queue_and_its_waiting_gangs(corner: Corner) -> None:
    answer = corner.bindery("explain", f"queue/{corner.name}", "--node-pool", corner.name)

    assert answer.startswith(f"Queue {corner.name} (priority 100): 0 of its own gangs run, 1 wait.")
    assert f"  {corner.namespace}/{corner.name}: Unschedulable: 2 of 3 pods fit" in answer


def test_queues_draws_the_allocated_and_waiting_amounts_of_a_queue(corner: Corner) -> None:
    drawn = corner.bindery("queues", "--node-pool", corner.name)

    assert drawn.startswith("GPUs: 2 in all, 0 allocated, 3 more asked for\n")
    (row,) = (line for line in drawn.splitlines() if line.startswith(corner.name))
    assert row.split()[1:6] == ["0", "3", "0", "0", "6"]


def test_whatif_shows_the_jobs_that_would_run_and_would_wait(
    corner: Corner, tmp_path: Path
) -> None:
    pool = {NODE_POOL_LABEL: corner.name}
    path = tmp_path / "more.yaml"
    alone = [_pod("new", index, corner.namespace, pool) for index in range(3)]
    group = {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": "new", "namespace": corner.namespace, "labels": pool},
        "spec": {"minMember": 2, "queue": corner.name},
    }
    path.write_text(yaml.safe_dump_all([group, *alone]))

    runs = json.loads(corner.bindery("whatif", str(path), "-o", "json"))
    path.write_text(yaml.safe_dump_all([{**group, "spec": {"minMember": 3}}, *alone]))
    waits = corner.bindery("whatif", str(path), ends_with=1)

    (job,) = runs["jobs"]
    assert [pod["node"] for pod in job["pods"]] == [corner.name, corner.name]
    assert "Unschedulable: 2 of 3 pods fit" in waits


def test_read_commands_do_not_change_the_cluster(corner: Corner, tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    pool = {NODE_POOL_LABEL: corner.name}
    path.write_text(yaml.safe_dump(_pod("single", 0, corner.namespace, pool)))
    before = corner.versions()

    corner.bindery("explain", corner.name, "-n", corner.namespace)
    corner.bindery("queues", "-o", "wide")
    answer = corner.bindery("whatif", str(path), ends_with=1)

    assert answer.endswith("Nothing has been changed.\n")
    assert len(before) >= 5
    assert corner.versions() == before


def test_a_snapshot_runs_as_a_scenario(corner: Corner, tmp_path: Path) -> None:
    path = str(tmp_path / "snapshot.yaml")

    corner.bindery("snapshot", "-o", path, "--node-pool", corner.name)
    result = json.loads(corner.bindery("scenario", "run", "--json", path))

    assert result["ok"]
    gang = [result["pods"][f"{corner.name}-{index}"] for index in range(3)]
    assert all("2 of 3 pods fit" in pod["reason"] for pod in gang)


def test_a_snapshot_without_names_runs_as_a_scenario(corner: Corner, tmp_path: Path) -> None:
    path, table = tmp_path / "snapshot.yaml", tmp_path / "names.tsv"

    corner.bindery(
        "snapshot",
        "--hide-names",
        "-o",
        str(path),
        "--names",
        str(table),
        "--node-pool",
        corner.name,
    )
    names = dict(line.split("\t")[::-1] for line in table.read_text().splitlines())
    result = json.loads(corner.bindery("scenario", "run", "--json", str(path)))

    assert corner.name not in path.read_text()
    gang = [result["pods"][names[f"{corner.name}-{index}"]] for index in range(3)]
    assert all("2 of 3 pods fit" in pod["reason"] for pod in gang)


def test_version_shows_the_server_and_the_installed_kinds(corner: Corner) -> None:
    _, server, resources, scheduler = corner.bindery("version").splitlines()

    assert server.startswith("server: v1.")
    assert resources == f"resources: {API_VERSION} installed"
    assert scheduler.startswith("scheduler: ")
    assert "Lease kube-system/bindery-scheduler " in scheduler
