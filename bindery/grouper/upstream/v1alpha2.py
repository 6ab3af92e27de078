"""`scheduling.k8s.io/v1alpha2`, of Kubernetes 1.36. Source: k8s.io/api 0.36."""

from typing import Final

from bindery.grouper.table.facts import mapping
from bindery.grouper.upstream.model import (
    POD_GROUP,
    WORKLOAD,
    Adapter,
    Body,
    Policy,
    UpstreamGroup,
    read_group,
    read_minimum,
)


def read(body: Body) -> UpstreamGroup:
    """Return the PodGroup `body`."""
    spec = mapping(body.get("spec"))
    template = mapping(mapping(spec.get("podGroupTemplateRef")).get("workload"))
    minimum, problem = read_minimum(spec, "minCount")
    policy = Policy(
        minimum=minimum,
        is_disrupted_whole=spec.get("disruptionMode") == "PodGroup",
        never_preempts=False,
        workload=str(template.get("workloadName") or ""),
        problem=problem,
    )
    return read_group(body, policy)


ADAPTER: Final = Adapter(
    version="v1alpha2",
    kinds=(POD_GROUP, WORKLOAD),
    read=read,
    scheduled={POD_GROUP: "PodGroupScheduled"},
    is_latched=False,
    demands_one_priority=False,
)
