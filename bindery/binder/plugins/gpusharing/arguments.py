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
    """Image of reservation pods, with the command `bindery reservation hold`. Default: the binder's
    own image, if an environment variable names it."""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "gpu-reservation"
    """ServiceAccount of reservation pods, in their namespace; it must write annotations there."""
    runtime_class: str = ""
    """RuntimeClass of reservation pods, where GPUs need one."""
    deadline_seconds: float = Field(default=40.0, gt=0)
    """Seconds until a reservation pod must have reported its device (KAI-Scheduler: 40)."""
    allow_visible_devices: bool = False
    """Whether pods may choose GPUs themselves by NVIDIA_VISIBLE_DEVICES."""
    uses_cdi: bool = False
    """Whether the device plugin names devices in CDI's form."""
    resources: ReservationResources = Field(default_factory=given_resources)
    """Resources of reservation pods, beside their device. Use the same values for the scheduler's
    plugin, which plans for these pods."""
