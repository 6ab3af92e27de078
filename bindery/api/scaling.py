"""The arguments of the scheduler plugin `scalingpods`, which shows shares of GPUs to
autoscalers.
"""

from typing import Final

from pydantic import Field, field_validator

from bindery.api import quantity
from bindery.api.base import ApiModel

PLUGIN: Final = "scalingpods"
SCHEDULER_NAME: Final = "bindery-scaling-pods"
"""`schedulerName` of scaling pods; no scheduler uses this name."""


class ScalingArguments(ApiModel):
    """The namespace and the maximum number of scaling pods."""

    namespace: str = Field(default="bindery-scaling", min_length=1, max_length=63)
    """The namespace of the scaling pods; it must contain nothing else."""
    max_gpus: int = Field(default=64, ge=1, le=4096)
    """Maximum number of GPUs that the scaling pods of this scheduler request."""
    cooldown_seconds: float = Field(default=30.0, ge=0)
    """Minimum time between two rounds in which scaling pods are created."""
    unknown_node_resources: dict[str, str] = Field(
        default_factory=lambda: {"cpu": "3", "memory": "12Gi"}
    )
    """Maximum resources that a scaling pod requests for each GPU while the cluster has no node with
    GPUs for its pods. A pod that requests more has a scaling pod of its own."""

    @field_validator("unknown_node_resources")
    @classmethod
    def _are_quantities(cls, amounts: dict[str, str]) -> dict[str, str]:
        for name, text in amounts.items():
            quantity.parse(text, name)
        return amounts
