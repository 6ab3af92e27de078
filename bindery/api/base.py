"""The base of models of files: camelCase in the file, snake_case in Python."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NonNegative = Annotated[int, Field(ge=0)]


class ApiModel(BaseModel):
    """Base of every part of a file. Unknown keys are errors."""

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
