"""Kubernetes' affinity and tolerations, as a scenario writes them.

They are modelled so that a misspelt key is an error here as it is at an API server. `objects`
hands them on unchanged.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bindery.scenario.fields import AnyObject, Name, NotYet, ScenarioModel


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
    """Terms of which one must hold."""

    node_selector_terms: tuple[SelectorTerm, ...] = Field(min_length=1)


class PreferredTerm(ScenarioModel):
    """A term; nodes that meet it score its weight."""

    weight: int = Field(ge=1, le=100)
    preference: SelectorTerm


class NodeAffinity(ScenarioModel):
    """The nodes that a pod requires and those that it prefers."""

    required: NodeSelector | None = Field(
        default=None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredTerm, ...] = Field(
        default=(), alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ScenarioModel):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Annotated[AnyObject, NotYet()] = Field(default_factory=dict)
    pod_anti_affinity: Annotated[AnyObject, NotYet()] = Field(default_factory=dict)


class Toleration(ScenarioModel):
    """A taint that the pod tolerates."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None
