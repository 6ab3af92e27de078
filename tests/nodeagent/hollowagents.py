"""Agents as processes of their own, as users run them, and ways to wait for what they do."""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from devcluster.components import Component, Components
from devcluster.plane import ControlPlane


class Agents:
    """Starts node agents; no other test uses their nodes' prefix."""

    def __init__(self, components: Components, plane: ControlPlane) -> None:
        self.prefix = f"n{secrets.token_hex(3)}-"
        self._components, self._plane = components, plane
        self._nodes: set[str] = set()

    def start(self, count: int, *options: str) -> Component:
        """Start an agent of `count` nodes; more processes may follow."""
        self._nodes |= {self.node(index) for index in range(count)}
        arguments = [f"--name-prefix={self.prefix}", *options]
        name = f"nodeagent-{self.prefix}{len(self._components.started)}"
        return self._components.start_hollow_nodes(count, arguments, name=name)

    def node(self, index: int = 0) -> str:
        """Return the name of a node."""
        return f"{self.prefix}{index}"

    def remove_nodes(self) -> None:
        """Delete all nodes; an agent that still runs does not bring them back."""
        if self._nodes:
            self._plane.kubectl(
                "delete", "node", "--ignore-not-found", "--wait=false", *sorted(self._nodes)
            )


class Cluster:
    """Looks at the cluster with kubectl, as users do. All waits have deadlines."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane, self.namespace = plane, namespace

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._plane.kubectl(*arguments, f"--namespace={self.namespace}", stdin=stdin)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def names(self, kind: str, *options: str) -> list[str]:
        listed = self.kubectl("get", kind, *options, "-o", "jsonpath={.items[*].metadata.name}")
        return listed.split()

    def wait(self, target: str, condition: str, timeout_s: int = 30) -> None:
        """Wait until `target` (kind/name) exists and `condition` holds, as in `kubectl wait`."""
        options = (target, f"--timeout={timeout_s}s")
        if condition != "delete":
            self.kubectl("wait", *options, "--for=create")
        self.kubectl("wait", *options, f"--for={condition}")

    def phase(self, pod: str, phase: str, timeout_s: int = 30) -> None:
        """Wait until `pod` has come to `phase`."""
        self.wait(f"pod/{pod}", f"jsonpath={{.status.phase}}={phase}", timeout_s)

    def started(self, pod: str) -> None:
        """Wait until `pod` runs; it may have ended since."""
        self.wait(f"pod/{pod}", "jsonpath={.status.startTime}")

    def create_pod(
        self,
        name: str,
        node: str,
        annotations: dict[str, str] | None = None,
        finalizers: Sequence[str] = (),
    ) -> str:
        """Create a pod that is bound to `node`; return its uid."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": annotations or {},
                "finalizers": list(finalizers),
            },
            "spec": {
                "nodeName": node,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "none"}],
            },
        }
        created = self.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(body))
        uid: str = json.loads(created)["metadata"]["uid"]
        return uid

    def eventually(self, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait for what `kubectl wait` cannot express."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.1)
