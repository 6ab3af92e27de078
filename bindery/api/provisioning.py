"""The arguments of the scheduler plugin `provisioning`, which asks autoscalers for nodes."""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import Field

from bindery.api.base import ApiModel
from bindery.api.names import PROVISIONING_REQUEST_ANNOTATION

PLUGIN: Final = "provisioning"
ATOMIC_CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


class ProvisioningArguments(ApiModel):
    """Which gangs get a ProvisioningRequest, and how long its nodes are awaited."""

    class_name: str = Field(default=ATOMIC_CLASS, min_length=1, max_length=253)
    """`provisioningClassName` of the requests."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """`parameters` of the requests, such as ValidUntilSeconds."""
    all_gangs: bool = False
    """Whether gangs without the annotation get a request too."""
    answer_seconds: float = Field(default=60.0, ge=0)
    """How long no pods are evicted for a gang with a request that the autoscaler has not answered,
    from when the gang began to wait."""
    await_seconds: float = Field(default=900.0, ge=0)
    """How long no pods are evicted for a gang after its request was accepted, and again after its
    nodes were provisioned."""
    retry_seconds: float = Field(default=600.0, ge=0)
    """How long after a request has failed or expired it is replaced by a new one."""

    def is_asked(self, annotations: Iterable[Mapping[str, str]]) -> bool:
        """Return whether a gang asks for nodes by the annotations of its PodGroup and its pods."""
        key = PROVISIONING_REQUEST_ANNOTATION
        first = next((each[key] for each in annotations if key in each), "")
        return first == "true" or (first != "false" and self.all_gangs)
