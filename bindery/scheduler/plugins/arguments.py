"""Plugin arguments as typed models: unknown keys are errors."""

from collections.abc import Mapping
from typing import Any

from bindery.api.base import ApiModel


class NoArguments(ApiModel):
    """For plugins that take none."""


def demand_none(arguments: Mapping[str, Any]) -> None:
    """Check that a plugin without arguments was given none.

    Raises:
        ValueError: it was.
    """
    NoArguments.model_validate(dict(arguments))
