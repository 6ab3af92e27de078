"""The base of all custom resource models: camelCase in JSON, snake_case in Python."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bindery.api.states import MOST_GANG_PODS

NonNegative = Annotated[int, Field(ge=0)]
PodCount = Annotated[int, Field(ge=0, le=MOST_GANG_PODS)]
"""A number of pods that a user requires."""
Quantity = Annotated[
    int | str,
    Field(json_schema_extra={"x-bindery-quantity": True}),
]
"""A Kubernetes quantity, such as 8, 1500m or 64Gi."""


class ApiModel(BaseModel):
    """Base of the models of custom resources and their parts. Unknown keys are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        defer_build=True,  # most commands import far more models than they validate
    )

    def to_wire(self) -> dict[str, object]:
        """Return the JSON form without fields that have their default value."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


class PrinterColumn(ApiModel):
    """One column that `kubectl get` shows for a kind."""

    name: str
    type: str = "string"
    json_path: str
    priority: int = 0


class Kind(BaseModel):
    """The fields of a CustomResourceDefinition beside its schema."""

    model_config = ConfigDict(frozen=True)

    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]


class CustomResource(ApiModel):
    """A top-level kind: subclasses set `kind_info`, `spec` and, where there is one, `status`."""

    kind_info: ClassVar[Kind]


class Condition(ApiModel):
    """A condition as in Kubernetes' `metav1.Condition`."""

    type: str
    status: str
    """True, False or Unknown."""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}
    )
