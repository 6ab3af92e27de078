"""Specs of pods for `nodecases`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from devcluster.realnode.images import BUSYBOX

Spec = dict[str, Any]

SMALL = {"cpu": "10m", "memory": "16Mi"}
"""What most pods ask for."""
WAITS = "trap 'exit 0' TERM; sleep 600 & wait $!"
"""A script that runs until it is stopped, and then ends with 0."""
ENDS_BY_SIGNAL = "trap 'exit 143' TERM; sleep 600 & wait $!"
"""A script that ends as a program does that has no handler for SIGTERM."""


@dataclass(frozen=True)
class Case:
    """Pods that come one after the other to one node, and what is done with them."""

    pods: tuple[Spec, ...]
    until: str = "Running"
    """The phase in which a real node leaves them, if it does not refuse them."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What makes the containers of a hollow node do the same."""
    is_deleted: bool = False
    """Whether the pod is deleted in the end; a finalizer keeps it readable."""
    releases: bool = False
    """Whether each pod is removed before the next one comes."""
    differs: str = ""
    """Why a hollow node does something else; empty: it does not."""


IMAGES = "there are no images, runtimes, programs or variables: every container starts"
VOLUMES = "there are no volumes or claims: none is missing"
PROBES = "probes do not run: all containers are ready"
INIT = "init containers end at once with 0"
END_TOGETHER = "all containers of a pod end together"
APP_ARMOR = "AppArmor is never missing"


def pod(
    requests: Mapping[str, str] = {},
    limits: Mapping[str, str] = {},
    *,
    command: str = WAITS,
    main: Mapping[str, Any] = {},
    **further: Any,
) -> Spec:
    """Return the spec of a pod with one container; `main`: of the container, `further`: of the
    spec.
    """
    return of({**container("main", requests, limits, command), **main}, **further)


def differing(spec: Spec, why: str, until: str = "Running") -> Case:
    """Return a pod with which a hollow node does something else."""
    return Case((spec,), until=until, differs=why)


def of(*containers: Spec, **further: Any) -> Spec:
    """Return the spec of a pod with these containers."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": list(containers),
        **further,
    }


def container(
    name: str,
    requests: Mapping[str, str] = {},
    limits: Mapping[str, str] = {},
    command: str = WAITS,
    **further: Any,
) -> Spec:
    resources = {"requests": dict(requests), "limits": dict(limits)}
    return {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", command],
        **({"resources": resources} if requests or limits else {}),
        **further,
    }


def sidecar(
    name: str = "side",
    requests: Mapping[str, str] = {},
    limits: Mapping[str, str] = {},
    command: str = WAITS,
    **further: Any,
) -> Spec:
    return container(name, requests, limits, command, restartPolicy="Always", **further)


def first(
    name: str = "first",
    requests: Mapping[str, str] = {},
    limits: Mapping[str, str] = {},
    command: str = "true",
    **further: Any,
) -> Spec:
    """Return an init container that ends at once."""
    return container(name, requests, limits, command, **further)


def exactly(cpu: str, memory: str = "16Mi", **further: Any) -> Spec:
    """Return the spec of a Guaranteed pod."""
    return pod({"cpu": cpu, "memory": memory}, {"cpu": cpu, "memory": memory}, **further)


def having(resource: str, count: int) -> Spec:
    """Return the spec of a pod with devices."""
    return pod({resource: str(count)}, {resource: str(count)})


def mounting(source: Mapping[str, Any], **mount: Any) -> Spec:
    """Return the spec of a pod with one volume."""
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return pod(main={"volumeMounts": mounts}, volumes=[{"name": "v", **source}])


def prefers(*expressions: Mapping[str, Any], key: str = "matchExpressions") -> Spec:
    """Return a required node affinity with one term."""
    terms = {"nodeSelectorTerms": [{key: list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def on_port(number: int, **further: Any) -> Spec:
    """Return the spec of a pod that takes a port of its node."""
    return pod(main={"ports": [{"containerPort": 80, "hostPort": number, **further}]})


def probing(**probes: Any) -> Spec:
    """Return the spec of a pod with probes of its container."""
    return pod(main=probes)


def by_command(command: str, **further: Any) -> Spec:
    """Return a probe that runs a command every second."""
    return {"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1, **further}
