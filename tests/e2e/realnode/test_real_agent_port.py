"""The API server reaches containers by the agent's port as by a kubelet's."""

import json
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from devcluster.errors import ControlPlaneError
from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.administrator import Administrator
from tests.e2e.realnode.agentpods import KUBELET, Pods, in_phase, restarted
from tests.e2e.realnode.nodepods import pod
from tests.e2e.support import WAIT_S

pytestmark = pytest.mark.e2e

PRINTS = "echo first; echo second; mkdir /kept/once && exit 1; sleep 600"
"""The container fails once, and runs then."""
ERRS = f"echo wrong >&2; {PRINTS}"
"""The runtime writes what comes through two pipes in any order."""
KEPT: dict[str, Any] = {
    "main": {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]},
    "volumes": [{"name": "kept", "emptyDir": {}}],
}
ANSWERS = "mkdir /www; echo hello >/www/index.html; exec httpd -f -p 8080 -h /www"
PORT = 10250
LOG_LIMITS = ("--container-log-max-size=16Ki", "--container-log-max-files=3")
WRITES = """
n=0
while [ $n -lt 12000 ]; do
  for _ in $(seq 200); do echo $n; n=$((n + 1)); done
  sleep 0.5
done
"""
"""Some 20 KiB of log a second, for more than three rounds of the rotation."""


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[RealNode]:
    with agentnode.added(cluster, 3, *LOG_LIMITS) as node:
        yield node


@pytest.fixture(scope="module")
def pods(cluster: RealCluster, administrator: Administrator, node: RealNode) -> Iterator[Pods]:
    """Pods on both nodes: some that print, run, and answer."""
    with cluster.control_plane.network.entered(), administrator.fresh_namespace() as namespace:
        pods = Pods(cluster, namespace)
        for where in (KUBELET, node.name):
            for name, command in (("prints", PRINTS), ("errs", ERRS)):
                spec = pod(command=command, restartPolicy="Always", **KEPT)
                pods.create(f"{name}-{where}", spec, where)
            pods.create(f"runs-{where}", pod(), where)
            pods.create(f"answers-{where}", pod(command=ANSWERS), where)
        yield pods


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("errs", ["--previous"]),
        ("prints", ["--previous", "--tail=2"]),
        ("prints", ["--previous", "--limit-bytes=9"]),
        ("errs", ["--previous", "--since=1h", "--timestamps"]),
        ("errs", ["--previous", "--since-time=2100-01-01T00:00:00Z"]),
    ],
)
def test_logs_are_equal_to_the_logs_of_a_kubelet(
    pods: Pods, node: RealNode, name: str, words: list[str]
) -> None:
    found = []
    for where in (KUBELET, node.name):
        pods.until(f"{name}-{where}", restarted)
        text = pods.kubectl("logs", f"{name}-{where}", *words)
        found.append(sorted(re.sub(r"^\S+Z ", "TIME ", line) for line in text.splitlines()))

    assert found[0] == found[1]


def test_a_followed_log_ends_with_its_container(pods: Pods, node: RealNode) -> None:
    pods.create("follows", pod(command="for n in 1 2 3; do echo $n; sleep 1; done"), node.name)
    pods.until("follows", lambda found: found["phase"] in ("Running", "Succeeded"))

    assert pods.kubectl("logs", "follows", "--follow").split() == ["1", "2", "3"]


@pytest.mark.long("rounds of ten seconds")
def test_a_reader_who_follows_a_log_misses_nothing_while_it_is_rotated(
    pods: Pods, node: RealNode
) -> None:
    pods.create("writes", pod(command=WRITES), node.name)
    pods.until("writes", in_phase("Running"))

    lines = pods.kubectl("logs", "writes", "--follow", timeout_s=120.0).split()

    assert lines == [str(number) for number in range(12_000)]
    logs = node.root.glob(f"var/log/pods/{pods.namespace}_writes_*/main/*")
    suffixes = [each.suffix for each in sorted(logs)]
    assert len(suffixes) == 3
    assert suffixes[:2] == [".log", ".gz"]


def test_the_log_of_a_reader_who_has_gone_is_closed(pods: Pods, node: RealNode) -> None:
    pods.until(f"runs-{node.name}", in_phase("Running"))
    with pytest.raises(ControlPlaneError, match="did not exit"):
        pods.kubectl("logs", f"runs-{node.name}", "--follow", timeout_s=3.0)

    deadline_s = time.monotonic() + WAIT_S
    while open_logs := _open_logs(node):
        assert time.monotonic() < deadline_s, open_logs
        time.sleep(0.2)


def _open_logs(node: RealNode) -> list[str]:
    """Return the logs of containers that the agent has open."""
    (agent,) = node.pids(Path(sys.executable).resolve().name)
    found = []
    for each in Path(f"/proc/{agent}/fd").iterdir():
        with suppress(OSError):
            found += [path for path in [str(each.readlink())] if "/pods/" in path]
    return found


def test_a_missing_container_is_refused_in_the_kubelets_words(pods: Pods, node: RealNode) -> None:
    found = []
    for where in (KUBELET, node.name):
        pods.until(f"runs-{where}", in_phase("Running"))
        with pytest.raises(ControlPlaneError) as caught:
            pods.kubectl("logs", f"runs-{where}", "--previous")
        found.append(re.sub("node-.", "NODE", str(caught.value)))

    assert found[0] == found[1]


def test_a_command_runs_with_its_input_and_gives_its_code(pods: Pods, node: RealNode) -> None:
    found = []
    for where in (KUBELET, node.name):
        pods.until(f"runs-{where}", in_phase("Running"))
        script = "cat; echo from the container; echo wrong >&2"
        command = ["exec", "--stdin", f"runs-{where}", "--", "sh", "-c", script]
        found.append(pods.kubectl(*command, stdin="from the caller\n" * 3000))
        with pytest.raises(ControlPlaneError) as caught:
            pods.kubectl("exec", f"runs-{where}", "--", "sh", "-c", "echo why >&2; exit 3")
        found.append(str(caught.value))

    assert found[:2] == found[2:]
    assert found[0] == "from the caller\n" * 3000 + "from the container\n"
    assert "exit code 3" in found[1]


@contextmanager
def forwarded(cluster: RealCluster, namespace: str, name: str) -> Iterator[int]:
    plane = cluster.control_plane
    command = [
        *(str(plane.kubectl_path), f"--kubeconfig={plane.admin_kubeconfig}"),
        *("port-forward", f"--namespace={namespace}", f"pod/{name}", ":8080"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split("->")[0].rpartition(":")[2])
        finally:
            process.terminate()


def test_a_port_of_a_pod_is_forwarded(cluster: RealCluster, pods: Pods, node: RealNode) -> None:
    name = f"answers-{node.name}"
    pods.until(name, in_phase("Running"))

    with forwarded(cluster, pods.namespace, name) as port:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=WAIT_S) as answer:
                assert answer.read() == b"hello\n"


def test_use_is_shown_under_the_names_of_a_kubelet(pods: Pods, node: RealNode) -> None:
    for where in (KUBELET, node.name):
        pods.until(f"runs-{where}", in_phase("Running"))

    kubelet, agent = (
        dict.fromkeys(_series(pods, where, f"runs-{where}")) for where in (KUBELET, node.name)
    )

    wanted = {
        "node_cpu_usage_seconds_total",
        "node_memory_working_set_bytes",
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
        "pod_cpu_usage_seconds_total",
        "pod_memory_working_set_bytes",
    }
    assert wanted <= {one.partition("{")[0] for one in agent}
    assert agent.keys() <= kubelet.keys()


def _series(pods: Pods, node: str, name: str) -> list[str]:
    """Return the series of the node and of one pod, once the pod was measured."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        text = pods.raw(f"/api/v1/nodes/{node}/proxy/metrics/resource")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        series = [line.rpartition("}")[0] or line.split()[0] for line in lines]
        own = [one for one in series if name in one or "{" not in one]
        if any("container_cpu" in one for one in own):
            return [one.replace(name, "POD") for one in own]
        assert time.monotonic() < deadline_s, text
        time.sleep(1)


def test_only_callers_with_the_right_are_answered(pods: Pods, node: RealNode) -> None:
    token = pods.kubectl("create", "token", "default").strip()

    assert _code(node, {}) == 401
    assert _code(node, {"Authorization": "Bearer nonsense"}) == 401
    assert _code(node, {"Authorization": f"Bearer {token}"}) == 403
    account = f"system:serviceaccount:{pods.namespace}:default"
    pods.kubectl("create", "clusterrole", "reads-health", "--verb=get", "--resource=nodes/healthz")
    pods.kubectl(
        "create", "clusterrolebinding", "reads-health", "--clusterrole=reads-health",
        f"--user={account}",
    )  # fmt: skip
    other = pods.kubectl("create", "token", "default").strip()
    deadline_s = time.monotonic() + WAIT_S
    while _code(node, {"Authorization": f"Bearer {other}"}) != 200:
        assert time.monotonic() < deadline_s
        time.sleep(1)
    assert _code(node, {"Authorization": f"Bearer {other}"}, "/metrics/resource") == 403


def _code(node: RealNode, headers: dict[str, str], path: str = "/healthz") -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://{node.plan.address}:{PORT}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=WAIT_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_the_node_names_its_port(pods: Pods, node: RealNode) -> None:
    found = json.loads(pods.kubectl("get", "node", node.name, "--output=json"))

    assert found["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": PORT}}
