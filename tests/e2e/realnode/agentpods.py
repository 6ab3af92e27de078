"""Pods that are bound to a node by name, and what is waited for in their status."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from devcluster.realnode.cluster import RealCluster
from tests.e2e.realnode.nodepods import Spec
from tests.e2e.support import WAIT_S

KUBELET: Final = "node-1"
Done = Callable[[Mapping[str, Any]], bool]


def in_phase(phase: str) -> Done:
    return lambda found: found["phase"] == phase


def waiting(reason: str) -> Done:
    def is_waiting(found: Mapping[str, Any]) -> bool:
        states = [*found.get("initContainerStatuses", ()), *found.get("containerStatuses", ())]
        return any(one["state"].get("waiting", {}).get("reason") == reason for one in states)

    return is_waiting


def restarted(found: Mapping[str, Any]) -> bool:
    (one,) = found["containerStatuses"]
    return bool(one["restartCount"] == 1 and "running" in one["state"])


class Pods:
    """Pods of one namespace; `wait_s`: how long something may take."""

    def __init__(self, cluster: RealCluster, namespace: str, wait_s: float = WAIT_S) -> None:
        self._plane, self.namespace, self._wait_s = cluster.control_plane, namespace, wait_s

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        words = (f"--namespace={self.namespace}", *arguments)
        return self._plane.kubectl(*words, stdin=stdin, timeout_s=timeout_s)

    def create(self, name: str, spec: Spec, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**spec, "nodeName": node},
        }
        self.kubectl("create", "--filename=-", stdin=json.dumps(body))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "pod", name, "--output=json"))
        status: dict[str, Any] = found["status"]
        return status

    def until(self, name: str, holds: Done) -> dict[str, Any]:
        """Wait until the status of a pod fulfils `holds`; return it."""
        deadline_s = time.monotonic() + self._wait_s
        while True:
            found = self.status(name)
            if holds(found):
                return found
            assert time.monotonic() < deadline_s, json.dumps(found, indent=1)
            time.sleep(0.2)

    def raw(self, path: str) -> str:
        """Return what the API server answers for a path."""
        return self._plane.kubectl("get", "--raw", path)
