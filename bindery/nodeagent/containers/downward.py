"""Values of a pod's own fields and resources, for variables and files. Pure.

Source: the downward API of Kubernetes 1.36.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bindery.api import quantity
from bindery.nodeagent.containers.errors import CREATE_CONFIG, StartError
from bindery.nodeagent.containers.podspec import RunContainer, RunPod
from bindery.nodeagent.volumes.sources import AmountReference
from bindery.nodecore.pods import CPU

_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_HUGE_PAGES: Final = "hugepages-"


@dataclass(frozen=True)
class PodSurroundings:
    """What a pod's values depend on beside the pod.

    Attributes:
        host_addresses: of the node.
        pod_addresses: of the pod's sandbox; the node's for pods in the network of the node.
        allocatable: resource -> the node's amount for pods, the limit of containers without one.
    """

    host_addresses: tuple[str, ...] = ()
    pod_addresses: tuple[str, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)


def field_value(pod: RunPod, path: str, around: PodSurroundings) -> str:
    """Return the value of a field of `pod`; raises StartError if no such field is offered."""
    meta = pod.metadata
    values = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "metadata.labels": _lines(meta.labels),
        "metadata.annotations": _lines(meta.annotations),
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": next(iter(around.host_addresses), ""),
        "status.hostIPs": ",".join(around.host_addresses),
        "status.podIP": next(iter(around.pod_addresses), ""),
        "status.podIPs": ",".join(around.pod_addresses),
    }
    if path in values:
        return values[path]
    keyed = _KEYED.fullmatch(path)
    if keyed:
        source = meta.labels if keyed[1] == "labels" else meta.annotations
        return source.get(keyed[2], "")
    raise StartError(CREATE_CONFIG, f"field label not supported: {path}")


def resource_value(
    pod: RunPod, container: RunContainer, selector: AmountReference, around: PodSurroundings
) -> str:
    """Return a request or limit in units of its divisor, rounded up; raises StartError."""
    name = selector.container_name or container.name
    of = next((one for one in pod.spec.all_containers if one.name == name), None)
    if of is None:
        raise StartError(CREATE_CONFIG, f"container {name} not found")
    kind, _, resource = selector.resource.partition(".")
    amounts = of.resources
    listed = (amounts.limits if kind == "limits" else amounts.requests) if amounts else None
    text = (listed or {}).get(resource)
    # Requests of CPU are counted in thousandths, as all amounts of CPU.
    if text is not None:
        amount = quantity.parse(text, resource)
    elif kind == "limits" and not resource.startswith(_HUGE_PAGES):
        amount = around.allocatable.get(resource, 0)
    else:
        amount = 0
    divisor = quantity.parse(
        selector.divisor if selector.divisor not in ("", "0") else "1", resource
    )
    return str(-(-amount // divisor)) if amount or resource == CPU else "0"


def _lines(values: Mapping[str, str]) -> str:
    """Return one line `key="value"` for each, with escapes as in a Go string."""
    return "\n".join(f"{key}={_quoted(values[key])}" for key in sorted(values))


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(one, one) for one in text) + '"'
