"""The chart as a release on real nodes, and the Jobs that it runs."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from devcluster import checkout
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.plane import RealControlPlane

NAMESPACE = "bindery-system"
QUEUE = "chart"
PODS = 4
"""Of each Job."""
_HELM_S = 240


class Release:
    """The release `bindery`, by helm and kubectl as its users run them."""

    def __init__(self, plane: RealControlPlane) -> None:
        self.plane = plane
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("label", "namespace", NAMESPACE, restricted)

    def helm(self, *arguments: str) -> str:
        wait = [f"--namespace={NAMESPACE}", f"--timeout={_HELM_S}s"]
        command = [str(self.plane.helm_path), *arguments, *wait]
        kubeconfig = f"--kubeconfig={self.plane.admin_kubeconfig}"
        return self.plane.run([*command, kubeconfig], timeout_s=_HELM_S + 10)

    def install(self) -> None:
        self.helm("install", "bindery", str(checkout.ROOT / "charts/bindery"), "--wait")

    def upgrade(self, *values: str) -> None:
        """Upgrade the release; `values`: as `--set-json` takes them."""
        chart = str(checkout.ROOT / "charts/bindery")
        self.helm("upgrade", "bindery", chart, "--wait", *(f"--set-json={each}" for each in values))

    def pods(self, namespace: str = NAMESPACE, selector: str = "") -> list[dict[str, Any]]:
        arguments = ("get", "pods", f"--namespace={namespace}", f"--selector={selector}")
        found: list[dict[str, Any]] = json.loads(self.plane.kubectl(*arguments, "--output=json"))[
            "items"
        ]
        return found

    def submit(self, *names: str) -> None:
        """Create Jobs, each a gang, in the namespace `default`."""
        items = [job(name) for name in names]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.plane.kubectl("create", "--filename=-", stdin=text)

    def wait_complete(self, *names: str, timeout_s: int = 120) -> None:
        jobs = [f"job/{name}" for name in names]
        self.plane.kubectl(
            "wait",
            "--for=condition=Complete",
            f"--timeout={timeout_s}s",
            *jobs,
            timeout_s=timeout_s + 10,
        )

    def objects(self) -> set[str]:
        """Return the names of all objects of the cluster but events, with their kinds."""
        kinds = self.plane.kubectl("api-resources", "--verbs=list", "--output=name").split()
        listed = [
            each for each in kinds if each.partition(".")[0] not in {"events", "componentstatuses"}
        ]
        return set(
            self.plane.kubectl("get", ",".join(listed), "--all-namespaces", "--output=name").split()
        )


def job(
    name: str, pods: int = PODS, script: str = "sleep 3", limits: Mapping[str, str] = {}
) -> dict[str, Any]:
    container = {
        "name": "worker",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "20m", "memory": "8Mi"}, "limits": limits},
    }
    template = {
        "spec": {
            "schedulerName": "bindery",
            "restartPolicy": "Never",
            "containers": [container],
        }
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"scheduling.bindery.dev/queue": QUEUE},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": template,
        },
    }


def queue() -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": QUEUE},
        "spec": {},
    }


def until(is_true: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    """Wait until something is true."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.5)
