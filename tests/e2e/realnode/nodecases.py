"""Pods for which a hollow node has to do what a real one does.

The pods of a case come one after the other to one node.
"""

from collections.abc import Mapping
from typing import Any

from realpods import DEVICE

from bindery.controlplane.realnode.images import BUSYBOX

Spec = dict[str, Any]


def pod(
    requests: Mapping[str, str] = {},
    limits: Mapping[str, str] = {},
    *,
    command: str = "sleep 600",
    **further: Any,
) -> Spec:
    """Return the spec of a pod with one container; `further`: of the spec."""
    containers = [container("main", requests, limits, command)]
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": containers,
        **further,
    }


def container(
    name: str,
    requests: Mapping[str, str] = {},
    limits: Mapping[str, str] = {},
    command: str = "sleep 600",
    **further: Any,
) -> Spec:
    return {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {command} & wait $!"],
        "resources": {"requests": dict(requests), "limits": dict(limits)},
        **further,
    }


def prefers(key: str, operator: str, values: list[str] | None = None) -> Spec:
    """Return a required node affinity."""
    expression = {"key": key, "operator": operator, **({"values": values} if values else {})}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


_PORT = [{"containerPort": 80, "hostPort": 8099}]
_SMALL = {"cpu": "100m", "memory": "16Mi"}

CASES: dict[str, list[Spec]] = {
    "containers that end": [pod(command="sleep 1")],
    "containers that end beside a sidecar": [
        pod(
            initContainers=[container("side", restartPolicy="Always")],
            containers=[container("main", command="sleep 1")],
        )
    ],
    "best effort": [pod()],
    "burstable": [pod(_SMALL)],
    "guaranteed": [pod(_SMALL, _SMALL)],
    "a limit alone": [pod(limits=_SMALL)],
    "more cores than the node has": [pod({"cpu": "64"})],
    "the last core is taken": [pod({"cpu": "1500m"}), pod({"cpu": "1500m"})],
    "more memory than the node has": [pod({"memory": "9Ti"})],
    "more cores and more memory": [pod({"cpu": "64", "memory": "9Ti"})],
    "more storage than the node has": [pod({"ephemeral-storage": "90Ti"})],
    "huge pages where there are none": [
        pod({"hugepages-2Mi": "4Mi", **_SMALL}, {"hugepages-2Mi": "4Mi"})
    ],
    "a resource that the node does not have": [
        pod({"example.com/none": "1"}, {"example.com/none": "1"})
    ],
    "all devices": [pod({DEVICE: "2"}, {DEVICE: "2"})],
    "more devices than there are": [pod({DEVICE: "3"}, {DEVICE: "3"})],
    "the last device is taken": [
        pod({DEVICE: "2"}, {DEVICE: "2"}),
        pod({DEVICE: "1"}, {DEVICE: "1"}),
    ],
    "a selector that the node has": [pod(nodeSelector={"kubernetes.io/os": "linux"})],
    "a selector that the node does not have": [pod(nodeSelector={"disk": "fast"})],
    "an affinity that holds": [pod(affinity=prefers("kubernetes.io/os", "Exists"))],
    "an affinity that does not hold": [pod(affinity=prefers("disk", "In", ["fast"]))],
    "a port of the host": [pod(containers=[container("main", ports=_PORT)])],
    "a port of the host that is taken": [
        pod(containers=[container("main", ports=_PORT)]),
        pod(containers=[container("main", ports=_PORT)]),
    ],
    "another operating system": [pod(os={"name": "windows"})],
    "a selector of another operating system": [pod(nodeSelector={"kubernetes.io/os": "windows"})],
    "an unsafe sysctl": [
        pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]})
    ],
    "a large init container that ends": [
        pod(_SMALL, initContainers=[container("first", {"cpu": "1500m"}, command="true")])
    ],
    "an init container that is too large": [
        pod(_SMALL, initContainers=[container("first", {"cpu": "64"}, command="true")])
    ],
    "a sidecar": [pod(_SMALL, initContainers=[container("side", _SMALL, restartPolicy="Always")])],
    "a sidecar that is too large with the rest": [
        pod(
            {"cpu": "1"},
            initContainers=[container("side", {"cpu": "1500m"}, restartPolicy="Always")],
        )
    ],
    "resources of the pod itself": [pod(resources={"requests": _SMALL, "limits": _SMALL})],
    "resources of the pod that are too large": [pod(resources={"requests": {"cpu": "64"}})],
    "two containers": [
        pod(containers=[container("one", {"cpu": "1"}), container("two", {"cpu": "500m"})])
    ],
    "two containers that are too large together": [
        pod(containers=[container("one", {"cpu": "1500m"}), container("two", {"cpu": "1500m"})])
    ],
    "an empty directory": [pod(volumes=[{"name": "v", "emptyDir": {}}])],
    "a readiness gate": [pod(readinessGates=[{"conditionType": "example.com/ready"}])],
    "a toleration of everything": [pod(tolerations=[{"operator": "Exists"}])],
    "the network of the host": [pod(hostNetwork=True)],
}

ENDING = frozenset({"containers that end", "containers that end beside a sidecar"})
"""The cases whose pods succeed after a second."""

KNOWN: dict[str, str] = {
    "a readiness gate": "hollow nodes are ready without them: nothing that schedules waits for one",
}
"""Cases that differ, with the reason."""
