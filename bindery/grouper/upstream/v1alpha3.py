"""`scheduling.k8s.io/v1alpha3`, of Kubernetes 1.37. Source: k8s.io/api 0.37."""

from typing import Final

from bindery.grouper.table.facts import mapping
from bindery.grouper.upstream.model import (
    COMPOSITE,
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
    """Return the PodGroup or CompositePodGroup `body`."""
    spec = mapping(body.get("spec"))
    is_composite = body.get("kind") == COMPOSITE
    minimum, problem = read_minimum(spec, "minGroupCount" if is_composite else "minCount")
    policy = Policy(
        minimum=minimum,
        is_disrupted_whole="all" in mapping(spec.get("disruptionMode")),
        never_preempts=spec.get("preemptionPolicy") == "Never",
        workload=str(mapping(spec.get("workloadRef")).get("workloadName") or ""),
        problem=problem,
    )
    return read_group(body, policy)


ADAPTER: Final = Adapter(
    version="v1alpha3",
    kinds=(POD_GROUP, COMPOSITE, WORKLOAD),
    read=read,
    scheduled={
        POD_GROUP: "PodGroupInitiallyScheduled",
        COMPOSITE: "CompositePodGroupInitiallyScheduled",
    },
    is_latched=True,
    demands_one_priority=True,
)
