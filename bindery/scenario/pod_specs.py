"""The key `spec` of a scenario's pods: the pod's spec as Kubernetes writes it.

Used by `checks` for mistakes and by `objects` for the pod. Pure. Invariant: no field of a pod comes
from `spec` and from another key.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from bindery.api.names import SCHEDULER_NAME
from bindery.api.yamlfile import Location
from bindery.kube.objects import reading
from bindery.kube.objects.podspec import PodSpec
from bindery.scenario.fields import AnyObject
from bindery.scenario.jobs import ScenarioPod
from bindery.scenario.raw_objects import with_text_amounts

_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": (
        "gpus",
        "cpu",
        "memory",
        "resources",
        "images",
        "host_ports",
        "qos",
        "required_features",
    ),
    "initContainers": ("init_containers",),
    "nodeSelector": ("node_selector",),
    "affinity": ("affinity",),
    "tolerations": ("tolerations",),
    "topologySpreadConstraints": ("topology_spread_constraints",),
    "resourceClaims": ("claims",),
    "volumes": ("volumes", "local_data"),
    "preemptionPolicy": ("preemption_policy",),
}
"""Field of the spec -> the fields of `ScenarioPod` that become it."""
_HAMI: Final = ("gpu_memory", "gpu_memory_percent", "gpu_cores", "gpu_devices")
"""By HAMi's protocol these become resources of a container."""
_ELSEWHERE: Final = {
    "nodeName": "write node and state beside spec",
    "priority": "write the priority of the job",
    "priorityClassName": "write the priority of the job",
}


def problems(pod: ScenarioPod, *, by_hami: bool) -> Iterator[tuple[Location, str]]:
    """Yield the mistakes in the spec of `pod`, each with its place in the pod's entry."""
    for field in pod.spec:
        if field in _ELSEWHERE:
            yield ("spec", field), _ELSEWHERE[field]
        same = _SAME.get(field, ()) + (_HAMI if by_hami and field == "containers" else ())
        for key in same:
            if key in pod.model_fields_set:
                alias = ScenarioPod.model_fields[key].alias or key
                yield ("spec", field), f"the pod has {alias}, which means the same; keep one"
    if pod.spec.get("schedulerName", SCHEDULER_NAME) != SCHEDULER_NAME:
        yield ("spec", "schedulerName"), "write schedulerName beside spec"
    try:
        merged(PodSpec(), pod.spec)
    except (msgspec.MsgspecError, RecursionError, TypeError) as error:
        yield ("spec",), str(error)


def merged(spec: PodSpec, written: AnyObject) -> PodSpec:
    """Return `spec` with the fields `written`.

    Raises:
        msgspec.ValidationError: one has the wrong type.
    """
    if not written:
        return spec
    wire = {**msgspec.to_builtins(spec), **with_text_amounts(written)}
    return reading.convert(wire, PodSpec)
