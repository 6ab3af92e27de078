"""The resources that a reservation pod requests beside the GPU that it holds for a group of pods.

The scheduler plans room for these pods, and the binder creates them, with the same value. If their
values differed, nodes without room would refuse the pods, and bindings would fail.
"""

import os
from collections.abc import Mapping
from typing import Final

from pydantic import Field, field_validator

from bindery.api import quantity
from bindery.api.base import ApiModel
from bindery.api.gpushare import RESERVATION_REQUESTS
from bindery.api.names import GPU_RESOURCE

RESOURCES_VARIABLE: Final = "BINDERY_GPU_RESERVATION_RESOURCES"
"""Environment variable of both processes: `ReservationResources` as JSON. The chart sets it."""


class ReservationResources(ApiModel):
    """Requests and limits of a reservation pod's container.

    There is no CPU limit by default: the start uses half a second of CPU time, and the first share
    of a GPU waits for the start.
    """

    requests: dict[str, str] = Field(default_factory=lambda: dict(RESERVATION_REQUESTS))
    limits: dict[str, str] = Field(default_factory=lambda: {"memory": "128Mi"})

    @field_validator("requests", "limits")
    @classmethod
    def _are_quantities(cls, amounts: dict[str, str]) -> dict[str, str]:
        for name, text in amounts.items():
            if name == GPU_RESOURCE:
                raise ValueError(f"{name} is added by the binder")
            quantity.parse(text, name)
        return amounts

    @property
    def planned(self) -> Mapping[str, str]:
        """The requests in effect: a limit without a request is also the request."""
        return {**self.limits, **self.requests}


def given_resources() -> ReservationResources:
    """Return the resources in the environment variable, or the default.

    Raises:
        ValueError: the environment variable cannot be read.
    """
    text = os.environ.get(RESOURCES_VARIABLE, "")
    return ReservationResources.model_validate_json(text) if text else ReservationResources()
