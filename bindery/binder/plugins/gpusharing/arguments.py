"""The plugin's arguments in the configuration."""

import os
from typing import Final

from pydantic import Field

from bindery.api.base import ApiModel
from bindery.api.gpureservation import ReservationResources, given_resources

IMAGE_VARIABLE: Final = "BINDERY_IMAGE"


class GpuSharingArguments(ApiModel):
    """The arguments of gpusharing."""

    image: str = Field(default_factory=lambda: os.environ.get(IMAGE_VARIABLE, "bindery:latest"))
    """Of reservation pods: it has the command `bindery reservation hold`. Default: the binder's
    own image, if its environment names it."""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "gpu-reservation"
    """Of reservation pods, in their namespace: it may write annotations there."""
    runtime_class: str = ""
    """Of reservation pods, where GPUs need one."""
    deadline_seconds: float = Field(default=40.0, gt=0)
    """How long a reservation pod has to say which device it got (KAI-Scheduler: 40)."""
    uses_cdi: bool = False
    """Whether devices are named as the device plugin's CDI specification does."""
    resources: ReservationResources = Field(default_factory=given_resources)
    """Of reservation pods, beside their device: the same as the scheduler's plugin is given, which
    plans for them."""
