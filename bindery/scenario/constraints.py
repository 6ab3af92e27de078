"""Kubernetes' affinity, spread constraints, host ports and tolerations, as a scenario writes them.

They are modelled so that a misspelt key is an error here as it is at an API server. `objects`
hands them on unchanged.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from bindery.scenario.fields import Name, ScenarioModel


class Requirement(ScenarioModel):
    """One expression over a label or field of a node."""

    key: Name
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_the_values_of_its_operator(self) -> "Requirement":
        count = len(self.values)
        if self.operator in ("In", "NotIn") and count == 0:
            raise ValueError(f"{self.operator} needs values")
        if self.operator in ("Exists", "DoesNotExist") and count:
            raise ValueError(f"{self.operator} takes no values")
        if self.operator in ("Gt", "Lt") and count != 1:
            raise ValueError(f"{self.operator} needs exactly one value")
        return self


class SelectorTerm(ScenarioModel):
    """Expressions that must all hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(ScenarioModel):
    """Terms; at least one of them must hold."""

    node_selector_terms: tuple[SelectorTerm, ...] = Field(min_length=1)


class PreferredTerm(ScenarioModel):
    """A term; nodes that meet it score its weight."""

    weight: int = Field(ge=1, le=100)
    preference: SelectorTerm


class NodeAffinity(ScenarioModel):
    """The required and the preferred nodes of a pod."""

    required: NodeSelector | None = Field(
        default=None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredTerm, ...] = Field(
        default=(), alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelRequirement(Requirement):
    """One expression over labels of pods or namespaces."""

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]


class LabelSelector(ScenarioModel):
    """Pods or namespaces by their labels; empty: all of them."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()


class PodAffinityTerm(ScenarioModel):
    """Pods, and a node label; each value of the label is a domain."""

    topology_key: Name
    label_selector: LabelSelector | None = None
    namespaces: tuple[Name, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[Name, ...] = ()
    mismatch_label_keys: tuple[Name, ...] = ()


class WeightedPodAffinityTerm(ScenarioModel):
    """A term; domains with such pods score its weight."""

    weight: int = Field(ge=1, le=100)
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ScenarioModel):
    """The pods near which, or far from which, a pod must or should be."""

    required: tuple[PodAffinityTerm, ...] = Field(
        default=(), alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = Field(
        default=(), alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ScenarioModel):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ScenarioModel):
    """How unevenly equal pods may stand in the domains of a node label."""

    max_skew: int = Field(default=1, ge=1)
    topology_key: Name
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = Field(default=None, ge=1)
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _counts_domains_only_if_it_is_hard(self) -> "TopologySpreadConstraint":
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("minDomains needs whenUnsatisfiable: DoNotSchedule")
        return self


class HostPort(ScenarioModel):
    """A port of the node that a container takes."""

    host_port: int = Field(ge=1, le=65535)
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    host_ip: str = Field(default="", alias="hostIP")


def _port(value: Any) -> Any:
    return {"hostPort": value} if isinstance(value, int) else value


HostPorts = tuple[Annotated[HostPort, BeforeValidator(_port)], ...]
"""Ports, each written as a number or with protocol and address."""


class Toleration(ScenarioModel):
    """A taint that the pod tolerates."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Gt", "Lt"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None
