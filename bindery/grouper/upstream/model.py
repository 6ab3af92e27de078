"""Upstream's groups, whatever the version of their API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bindery.grouper.table.facts import Reference, mapping, reference_of

GROUP: Final = "scheduling.k8s.io"
POD_GROUP: Final = "PodGroup"
COMPOSITE: Final = "CompositePodGroup"
WORKLOAD: Final = "Workload"

Body = Mapping[str, Any]
"""An object as JSON has it."""


@dataclass(frozen=True, slots=True)
class UpstreamGroup:
    """A PodGroup, which has pods, or a CompositePodGroup, which has groups."""

    reference: Reference
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    is_composite: bool = False
    parent: str = ""
    """The name of the CompositePodGroup above; "" for none."""
    workload: str = ""
    """The name of the Workload that it was made from; "" for none."""
    minimum: int | None = None
    """The pods, or the groups below, that are needed; None: the policy is basic, none is."""
    topology_key: str = ""
    """The node label of which all pods must have one value; "" for none."""
    is_disrupted_whole: bool = False
    priority_class: str = ""
    never_preempts: bool = False
    conditions: tuple[Mapping[str, Any], ...] = ()
    generation: int = 0
    resource_version: str = ""
    problem: str = ""
    """What of it cannot be understood; "" if all can."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.reference.name


@dataclass(frozen=True, slots=True)
class Adapter:
    """How one version of the API is read, and what is reported in it."""

    version: str
    kinds: tuple[str, ...]
    """The kinds that are served in this version."""
    read: Callable[[Body], UpstreamGroup]
    """Reads a PodGroup or a CompositePodGroup."""
    scheduled: Mapping[str, str]
    """Kind -> the condition type of scheduled groups."""
    is_latched: bool
    """Whether that condition stays True once it is."""
    demands_one_priority: bool
    """Whether all pods of a group must have one priority."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{GROUP}/{self.version}"


@dataclass(frozen=True, slots=True)
class Policy:
    """The scheduling policy of a group, in a form that all versions share."""

    minimum: int | None
    is_disrupted_whole: bool
    never_preempts: bool
    workload: str
    problem: str = ""


def read_group(body: Body, policy: Policy) -> UpstreamGroup:
    """Return the group `body`, of which `policy` was read by the adapter of its version."""
    metadata, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    topology = mapping(spec.get("schedulingConstraints")).get("topology") or ()
    found = mapping(body.get("status")).get("conditions") or ()
    return UpstreamGroup(
        reference=reference_of(body),
        labels=mapping(metadata.get("labels")),
        annotations=mapping(metadata.get("annotations")),
        is_composite=body.get("kind") == COMPOSITE,
        parent=str(spec.get("parentCompositePodGroupName") or ""),
        workload=policy.workload,
        minimum=policy.minimum,
        topology_key=next((str(mapping(each).get("key") or "") for each in topology), ""),
        is_disrupted_whole=policy.is_disrupted_whole,
        priority_class=str(spec.get("priorityClassName") or ""),
        never_preempts=policy.never_preempts,
        conditions=tuple(mapping(each) for each in found),
        generation=int(metadata.get("generation") or 0),
        resource_version=str(metadata.get("resourceVersion") or ""),
        problem=policy.problem,
    )


def read_minimum(spec: Body, count_key: str) -> tuple[int | None, str]:
    """Return the minimum of a scheduling policy and what is wrong with it.

    `count_key`: the name of the count in a gang policy.
    """
    policy = mapping(spec.get("schedulingPolicy"))
    if "gang" in policy:
        count = mapping(policy["gang"]).get(count_key)
        if isinstance(count, int) and count >= 1:
            return count, ""
        return None, f"spec.schedulingPolicy.gang.{count_key} is {count!r}, not a positive number"
    if "basic" in policy:
        return None, ""
    return None, "spec.schedulingPolicy is neither basic nor gang"
