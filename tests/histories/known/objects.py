"""The objects of a world that is written by hand."""

from collections.abc import Mapping
from typing import Any, Final

from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, FRACTION_ANNOTATION
from bindery.api.names import (
    API_VERSION,
    GPU_RESOURCE,
    HOLLOW_RUN_SECONDS_ANNOTATION,
    POD_GROUP_ANNOTATION,
)
from bindery.binder.plugins.gpusharing import admission

Body = dict[str, Any]
GRACE_S: Final = 5.0
"""How long a gang may continue below its minimum."""


def named(api_version: str, kind: str, name: str, **metadata: Any) -> Body:
    """Return an object without content."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def queue(name: str, cpu: Mapping[str, Any], parent: str | None = None) -> Body:
    """Return a Queue. `cpu`: its quota, limit and weight."""
    spec: Body = {"resources": {"cpu": cpu}}
    if parent is not None:
        spec["parent"] = parent
    return {**named(API_VERSION, "Queue", name), "spec": spec}


def group(name: str, minimum: int, queue: str = "default", **spec: Any) -> Body:
    """Return a PodGroup."""
    wanted = {"minMember": minimum, "queue": queue, "stalenessGracePeriodSeconds": GRACE_S, **spec}
    return {**named(API_VERSION, "PodGroup", name), "spec": wanted}


def pod(
    name: str,
    gang: str,
    cores: int = 1,
    *,
    gpus: int = 0,
    fraction: str = "",
    run_s: float | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Body:
    """Return a pod of a gang; `run_s`: after which it succeeds."""
    limits = {GPU_RESOURCE: str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": str(cores), **limits}, "limits": limits}
    annotations = {POD_GROUP_ANNOTATION: gang}
    if run_s is not None:
        annotations[HOLLOW_RUN_SECONDS_ANNOTATION] = f"{run_s:.3f}"
    if fraction:
        annotations[FRACTION_ANNOTATION] = fraction
        annotations[CONFIG_MAP_ANNOTATION] = f"{name}-shared-gpu"  # the webhook would draw it
    body = {
        **named("v1", "Pod", name, annotations=annotations, labels=dict(labels or {})),
        "spec": {
            "schedulerName": "bindery",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "worker", "resources": resources}],
            **spec,
        },
    }
    return admission.prepared(body) if fraction else body
