"""Bindery's agent runs pods with a real containerd as the kubelet of another node does.

Each pod goes to both nodes; phase, conditions, states, exit codes and reasons are compared.
"""

import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bindery.nodecore.certificates.requests import SERVING_SIGNER, client_template, leaf_of
from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.administrator import Administrator
from tests.e2e.realnode.agentpods import KUBELET, Done, Pods, in_phase, restarted, waiting
from tests.e2e.realnode.nodepods import (
    Spec,
    by_command,
    container,
    first,
    of,
    pod,
    probing,
    sidecar,
)
from tests.e2e.realnode.realpods import DEVICE, running
from tests.e2e.support import WAIT_S
from tests.sizes import sample

pytestmark = pytest.mark.e2e

MESSAGE = "/dev/termination-log"
READS = f"echo $MODE $KEY $(cat /c/mode) $(cat /s/key) $(cat /d/name) >{MESSAGE}"
SOURCES = {
    "env": [
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "settings", "key": "key"}}},
    ],
    "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in "csd"],
}
FILES = [
    {"name": "c", "configMap": {"name": "settings"}},
    {"name": "s", "secret": {"secretName": "settings"}},
    {
        "name": "d",
        "downwardAPI": {
            "items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.namespace"}}]
        },
    },
]
SERVER = r"""
from concurrent.futures import ThreadPoolExecutor
import grpc
answer = lambda request, _: bytes((8, 2 if b"sick" in request else 1))
check = grpc.unary_unary_rpc_method_handler(answer)
handler = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})
server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
server.add_insecure_port("0.0.0.0:8080")
server.start()
server.wait_for_termination()
"""
"""A server of gRPC's health service, by this machine's Python: the images have no such server."""


def served_by_grpc(**probes: str) -> Spec:
    """Return a pod with probes by gRPC: their names -> the service that each asks for."""
    named = {
        name: {"grpc": {"port": 8080, "service": service}, "periodSeconds": 1, "timeoutSeconds": 5,
               "failureThreshold": 600}
        for name, service in probes.items()
    }  # fmt: skip
    mount = {"name": "machine", "mountPath": "/machine", "readOnly": True}
    main = {
        **container("main"),
        "command": ["chroot", "/machine", sys.executable, "-P", "-c", SERVER],
        "volumeMounts": [mount],
        **named,
    }
    return of(main, volumes=[{"name": "machine", "hostPath": {"path": "/"}}])


def started(found: Mapping[str, Any]) -> bool:
    return all(one["started"] for one in found.get("containerStatuses", ({"started": False},)))


def ready(found: Mapping[str, Any]) -> bool:
    return all(one["ready"] for one in found.get("containerStatuses", ({"ready": False},)))


CASES: dict[str, tuple[Spec, Done]] = {
    "a success": (pod(command="exit 0"), in_phase("Succeeded")),
    "an exit code": (pod(command="exit 3"), in_phase("Failed")),
    "an init container and a sidecar": (
        pod(command="sleep 2", initContainers=[first(), sidecar()]),
        in_phase("Succeeded"),
    ),
    "an init container that fails": (
        pod(initContainers=[first(command="exit 4")]),
        in_phase("Failed"),
    ),
    "a readiness probe by gRPC": (served_by_grpc(readinessProbe="well"), ready),
    "variables and files": (
        pod(command=READS, main=SOURCES, volumes=FILES),
        in_phase("Succeeded"),
    ),
    "a readiness probe that fails": (
        probing(readinessProbe=by_command("false")),
        in_phase("Running"),
    ),
    "a liveness probe that fails once": (
        pod(
            command="sleep 600",
            main={"livenessProbe": by_command("false", failureThreshold=3)},
            restartPolicy="Always",
            terminationGracePeriodSeconds=1,
        ),
        restarted,
    ),
    "a missing ConfigMap": (
        pod(
            main={
                "env": [
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "a"}}}
                ]
            }
        ),
        waiting("CreateContainerConfigError"),
    ),
    "a missing program": (
        of({**container("main"), "command": ["/none"]}),
        in_phase("Failed"),
    ),
    "a missing image": (
        of({**container("main"), "image": "bindery.dev/none:1", "imagePullPolicy": "Never"}),
        waiting("ErrImageNeverPull"),
    ),
    "root that is not allowed": (
        pod(securityContext={"runAsNonRoot": True}),
        waiting("CreateContainerConfigError"),
    ),
    "a readiness probe by gRPC that fails": (
        served_by_grpc(startupProbe="well", readinessProbe="sick"),
        started,
    ),
    "a deadline": (pod(activeDeadlineSeconds=4), in_phase("Failed")),
}


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[RealNode]:
    with agentnode.added(cluster) as node:
        yield node


@pytest.fixture(scope="module")
def place(administrator: Administrator, cluster: RealCluster) -> Iterator[str]:
    """A namespace with a ConfigMap and a Secret."""
    with cluster.control_plane.network.entered(), administrator.fresh_namespace() as name:
        for kind, literal in ((["configmap"], "mode=fast"), (["secret", "generic"], "key=hidden")):
            cluster.control_plane.kubectl(
                "create", *kind, "settings", f"--namespace={name}", f"--from-literal={literal}"
            )
        yield name


@pytest.fixture(scope="module")
def pods(cluster: RealCluster, place: str) -> Pods:
    return Pods(cluster, place)


def shown(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without identities, addresses and times."""
    states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "conditions": {
            one["type"]: (one["status"], one.get("reason"), one.get("message"))
            for one in status["conditions"]
        },
        "containers": {
            one["name"]: (
                _state(one["state"]), _state(one["lastState"]), one["ready"], one["started"],
                *(one.get(key) for key in ("user", "resources", "allocatedResources")),
            )
            for one in states
        },
    }  # fmt: skip


def _state(state: Mapping[str, Any]) -> tuple[Any, ...]:
    for kind, about in state.items():
        message = about.get("message") if kind == "terminated" else None
        return (kind, about.get("reason"), about.get("exitCode"), message)
    return ()


@pytest.mark.parametrize("case", sample(5, CASES))
def test_a_pod_is_run_as_a_kubelet_runs_it(pods: Pods, node: RealNode, case: str) -> None:
    spec, done = CASES[case]
    name = case.lower().replace(" ", "-")
    for where in (KUBELET, node.name):
        pods.create(f"{name}-{where}", spec, where)

    by_kubelet, by_agent = (pods.until(f"{name}-{where}", done) for where in (KUBELET, node.name))

    assert shown(by_agent) == shown(by_kubelet)
    for where in (KUBELET, node.name):
        pods.kubectl("delete", "pod", f"{name}-{where}", "--grace-period=1", "--wait=false")


@pytest.mark.long("a pause of minutes")
def test_a_container_that_fails_again_is_restarted_after_a_pause(
    pods: Pods, node: RealNode
) -> None:
    """By the agent alone: a kubelet shows the pause for moments only, if at all."""
    pods.create("again", pod(command="exit 3", restartPolicy="OnFailure"), node.name)

    (found,) = pods.until("again", waiting("CrashLoopBackOff"))["containerStatuses"]

    assert found["restartCount"] >= 1
    assert (found["lastState"]["terminated"]["exitCode"], found["ready"]) == (3, False)
    pods.kubectl("delete", "pod", "again", "--grace-period=1", "--wait=false")


def test_a_job_completes(pods: Pods, node: RealNode) -> None:
    template = {"spec": pod(command="exit 0", nodeName=node.name)}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": template},
    }
    pods.kubectl("create", "--filename=-", stdin=json.dumps(body))

    pods.kubectl("wait", "job/job", "--for=condition=Complete", "--timeout=50s")


def test_a_deleted_pod_runs_its_hook_and_leaves_nothing(pods: Pods, node: RealNode) -> None:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo saved >/v/file"]}}}
    spec = pod(
        main={**mounts, "lifecycle": hook},
        volumes=[{"name": "v", "hostPath": {"path": "/node/shared"}}],
        terminationGracePeriodSeconds=10,
    )
    pods.create("hooked", spec, node.name)
    pods.until("hooked", in_phase("Running"))
    uid = pods.kubectl("get", "pod", "hooked", "--output=jsonpath={.metadata.uid}")

    pods.kubectl("delete", "pod", "hooked", "--timeout=50s")

    assert (node.shared / "file").read_text() == "saved\n"
    deadline_s = time.monotonic() + WAIT_S
    while any(uid in text for text in _left(node)):
        assert time.monotonic() < deadline_s, _left(node)
        time.sleep(0.2)


def _left(node: RealNode) -> list[str]:
    """Return the directories, logs and cgroups of pods on the node."""
    paths = "/var/lib/kubelet/pods /var/log/pods"
    found = node.run("sh", "-c", f"ls -d {paths.replace(' ', '/* ')}/* 2>/dev/null || true")
    groups = node.run("sh", "-c", f"find /sys/fs/cgroup -path '*{node.plan.cgroup}*' -name 'pod*'")
    return [*found.split(), *groups.split()]


def test_a_pod_whose_sandbox_dies_runs_again_with_another_address(
    pods: Pods, node: RealNode
) -> None:
    pods.create("moved", pod(restartPolicy="Always"), node.name)
    before = pods.until("moved", in_phase("Running"))["podIP"]
    labels = 'labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.name"==moved'
    ctr = ("ctr", "--namespace=k8s.io")
    sandbox = node.run(*ctr, "containers", "list", "--quiet", labels).strip()

    node.run(*ctr, "tasks", "kill", "--signal=SIGKILL", sandbox)

    found = pods.until("moved", lambda status: status.get("podIP") not in (before, None))
    assert found["podIPs"] == [{"ip": found["podIP"]}]
    pods.kubectl("delete", "pod", "moved", "--grace-period=1", "--wait=false")


def test_a_killed_agent_takes_over_what_runs_and_ends_what_is_gone(
    pods: Pods, node: RealNode
) -> None:
    for name in ("kept", "removed"):
        pods.create(name, pod(restartPolicy="Always"), node.name)
    kept = pods.until("kept", in_phase("Running"))["containerStatuses"][0]["containerID"]
    removed = pods.until("removed", in_phase("Running"))["containerStatuses"][0]["containerID"]

    node.hold("kubelet")
    try:
        agentnode.kill(node)
        pods.kubectl("delete", "pod", "removed", "--force", "--grace-period=0")
        pods.create("later", pod(), node.name)
    finally:
        node.release("kubelet")

    pods.until("later", in_phase("Running"))
    deadline_s = time.monotonic() + WAIT_S
    while removed.rpartition("/")[2] in _tasks(node) or "_removed_" in _logs(node):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    status = pods.until("kept", in_phase("Running"))["containerStatuses"][0]
    assert (status["containerID"], status["restartCount"]) == (kept, 0)
    assert kept.rpartition("/")[2] in _tasks(node)


def test_pods_keep_the_devices_of_a_plugin_when_the_agent_is_killed(
    cluster: RealCluster, pods: Pods, node: RealNode
) -> None:
    path = DEVICE.replace(".", r"\.")
    offered = f"--for=jsonpath={{.status.allocatable.{path}}}=2"
    plane = cluster.control_plane
    plane.kubectl("wait", f"node/{node.name}", offered, "--timeout=60s")
    names = ("device-1", "device-2")
    for name in names:
        pods.create(name, running("ls /tmp; sleep 600", devices=1), node.name)
    before = [pods.until(name, in_phase("Running")) for name in names]
    # The plugin mounts a file for each device, with its name.
    logs = [node.run("sh", "-c", f"cat /var/log/pods/*_{name}_*/worker/0.log") for name in names]
    assert {log.split()[-1] for log in logs} == {"Dev-1", "Dev-2"}

    agentnode.kill(node)

    pods.create("device-3", running("sleep 600", devices=1), node.name)
    refused = pods.until("device-3", in_phase("Failed"))
    assert refused["reason"] == "UnexpectedAdmissionError", refused["message"]
    plane.kubectl("wait", f"node/{node.name}", offered, "--timeout=60s")
    assert [shown(pods.status(name)) for name in names] == list(map(shown, before))


def _tasks(node: RealNode) -> str:
    return node.run("ctr", "--namespace=k8s.io", "tasks", "list")


def _logs(node: RealNode) -> str:
    return node.run("ls", "/var/log/pods")


def test_a_pod_with_what_is_not_carried_out_fails_with_the_reason(
    pods: Pods, node: RealNode
) -> None:
    volume = {"name": "v", "nfs": {"server": "none.example.com", "path": "/"}}
    pods.create("unsupported", pod(volumes=[volume]), node.name)

    found = pods.until("unsupported", in_phase("Failed"))

    assert found["reason"] == "UnsupportedPodSpec"
    assert "volumes.nfs: " in found["message"]


PKI = f"{agentnode.DIRECTORY}/pki"


def test_the_agent_has_a_certificate_of_its_node(node: RealNode) -> None:
    pem = node.run("cat", f"{PKI}/kubelet-client-current.pem").encode()

    assert leaf_of(pem).template == client_template(node.name)
    assert f"{PKI}/kubelet-client-current.pem" in node.run("cat", f"{PKI}/kubeconfig")


def test_a_serving_certificate_is_signed_once_an_administrator_approves_it(
    cluster: RealCluster, node: RealNode
) -> None:
    def requests() -> list[dict[str, Any]]:
        found = json.loads(cluster.control_plane.kubectl("get", "csr", "--output=json"))["items"]
        own = {"signerName": SERVING_SIGNER, "username": f"system:node:{node.name}"}
        return [each for each in found if own.items() <= each["spec"].items()]

    deadline_s = time.monotonic() + WAIT_S
    while not (found := requests()):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    assert len(found) == 1, "kills of the agent have not made further ones"
    cluster.control_plane.kubectl("certificate", "approve", found[0]["metadata"]["name"])
    current = f"{PKI}/kubelet-server-current.pem"
    while not node.run("sh", "-c", f"ls {current} 2>/dev/null || true"):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)

    served = leaf_of(node.run("cat", current).encode()).template
    assert (served.dns_names, served.ip_addresses) == ((node.name,), (node.plan.address,))
    trusting = ssl.create_default_context(cafile=cluster.control_plane.authority.certificate)
    while not is_trusted(node, trusting):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def is_trusted(node: RealNode, context: ssl.SSLContext) -> bool:
    """Return whether the node's port has a certificate for its address that `context` trusts."""
    address = node.plan.address
    with socket.create_connection((address, 10250)) as connection:
        try:
            context.wrap_socket(connection, server_hostname=address).close()
        except ssl.SSLCertVerificationError:
            return False
    return True


def test_the_node_has_what_its_cloud_provider_knows(cluster: RealCluster, node: RealNode) -> None:
    found = json.loads(cluster.control_plane.kubectl("get", "node", node.name, "--output=json"))

    labels = found["metadata"]["labels"]
    assert found["spec"]["providerID"] == agentnode.FACTS["providerID"]
    assert labels["node.kubernetes.io/instance-type"] == agentnode.FACTS["instanceType"]
    assert labels["topology.kubernetes.io/zone"] == agentnode.FACTS["zone"]


def test_the_node_stays_ready_although_its_runtime_has_warnings(
    cluster: RealCluster, node: RealNode
) -> None:
    """containerd has a condition for each kind of warning, such as cgroup v1."""
    path = "{.status.conditions[?(@.type=='Ready')].status}"
    plane = cluster.control_plane

    assert plane.kubectl("get", "node", node.name, f"--output=jsonpath={path}") == "True"


def test_the_rights_of_a_node_were_enough(node: RealNode) -> None:
    """By all tests above. The authorizer knows what a new pod uses a moment after it was bound."""
    lines = (node.logs / "kubelet.log").read_text().splitlines()

    assert lines
    refused = [line for line in lines if "orbidden" in line]
    assert [line for line in refused if "no relationship found" not in line] == []
