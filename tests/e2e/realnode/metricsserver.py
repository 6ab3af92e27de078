"""metrics-server beside the real nodes: what `kubectl top` asks.

It is served by the API server as in a cluster, with the rights of its published manifest. The API
server of the tests has no certificate to show it, so its questions are anonymous, and the anonymous
user gets the right to read.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from devcluster import build, kubeconfig
from devcluster.processes import Command
from devcluster.realnode.plane import RealControlPlane
from tests.e2e.support import WAIT_S
from tests.required import lacking

_NAME: Final = build.METRICS_SERVER
_ADDRESS: Final = "10.77.0.1"
"""The first address of the nodes' bridge; a Service has no endpoints on the loopback."""
_PORT: Final = 4443
_RBAC: Final = "rbac.authorization.k8s.io"
_SYSTEM: Final = "kube-system"
_API: Final = "v1beta1.metrics.k8s.io"
_IS_SERVED: Final = (
    *("get", "apiservice", _API),
    '--output=jsonpath={.status.conditions[?(@.type=="Available")].status}',
)
_ACCOUNT: Final = {"kind": "ServiceAccount", "name": _NAME, "namespace": _SYSTEM}


def program() -> Path:
    """Return metrics-server, or skip the test if it is not built."""
    if not build.are_built((_NAME,), build.METRICS_MODULE):
        lacking("metrics-server is not built: make metrics", part="metrics")
    return build.binaries((_NAME,), print, build.METRICS_MODULE)[_NAME]


@contextmanager
def running(plane: RealControlPlane, directory: Path) -> Iterator[None]:
    """Run metrics-server, and remove it from the API server afterwards."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects()})
    plane.kubectl("apply", "--filename=-", stdin=text)
    token = plane.kubectl("create", "token", _NAME, f"--namespace={_SYSTEM}").strip()
    server = kubeconfig.Server.read(plane.admin_kubeconfig)
    credentials = kubeconfig.write(directory / "metrics.kubeconfig", server, _NAME, token)
    command = [
        str(program()),
        f"--kubeconfig={credentials}",
        f"--authentication-kubeconfig={credentials}",
        f"--authorization-kubeconfig={credentials}",
        f"--bind-address={_ADDRESS}",
        f"--secure-port={_PORT}",
        f"--cert-dir={directory / 'metrics-certificates'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-insecure-tls",
        "--metric-resolution=15s",
    ]
    log = directory / "metrics-server.log"
    process = plane.start_process(Command(_NAME, command, log), tethered=True)
    try:
        deadline_s = time.monotonic() + WAIT_S
        while plane.kubectl(*_IS_SERVED) != "True":
            process.check()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.5)
        yield
    finally:
        process.stop()
        plane.kubectl("delete", "--filename=-", stdin=text)


def _objects() -> list[dict[str, Any]]:
    meta = {"name": _NAME, "namespace": _SYSTEM}
    port = {"name": "https", "port": _PORT, "protocol": "TCP"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        _role(_NAME, [
            {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
        ]),
        _binding(_NAME, _NAME, _ACCOUNT),
        _binding(f"{_NAME}-delegates", "system:auth-delegator", _ACCOUNT),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": _reference("Role", "extension-apiserver-authentication-reader"),
            "subjects": [_ACCOUNT],
        },
        _role(f"{_NAME}-readers", [
            {
                "apiGroups": ["metrics.k8s.io"],
                "resources": ["pods", "nodes"],
                "verbs": ["get", "list"],
            },
            {"nonResourceURLs": ["/apis/metrics.k8s.io/*"], "verbs": ["get"]},
        ]),
        _binding(
            f"{_NAME}-readers",
            f"{_NAME}-readers",
            {"kind": "User", "apiGroup": _RBAC, "name": "system:anonymous"},
        ),
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": _NAME}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [_ADDRESS], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _API},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**meta, "port": _PORT},
            },
        },
    ]  # fmt: skip


def _role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def _binding(name: str, role: str, subject: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": _reference("ClusterRole", role),
        "subjects": [subject],
    }


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": _RBAC, "kind": kind, "name": name}
