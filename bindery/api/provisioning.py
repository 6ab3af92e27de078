"""The arguments of the scheduler plugin `provisioning`, which requests nodes from autoscalers."""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import Field

from bindery.api.base import ApiModel
from bindery.api.names import PROVISIONING_REQUEST_ANNOTATION

PLUGIN: Final = "provisioning"
ATOMIC_CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


class ProvisioningArguments(ApiModel):
    """The gangs that get a ProvisioningRequest, and the times for which its nodes are awaited."""

    class_name: str = Field(default=ATOMIC_CLASS, min_length=1, max_length=253)
    """`provisioningClassName` of the requests."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """`parameters` of the requests, such as ValidUntilSeconds."""
    all_gangs: bool = False
    """Whether gangs without the annotation also get a request."""
    answer_seconds: float = Field(default=60.0, ge=0)
    """Time after a gang began to wait during which no pods are evicted for it while the autoscaler
    has not answered its request."""
    await_seconds: float = Field(default=900.0, ge=0)
    """Time during which no pods are evicted for a gang after its request was accepted, and again
    after its nodes were provisioned."""
    retry_seconds: float = Field(default=600.0, ge=0)
    """Time after the failure or expiry of a request until it is replaced by a new one."""

    def is_asked(self, annotations: Iterable[Mapping[str, str]]) -> bool:
        """Return whether annotations of the gang's PodGroup or pods request nodes."""
        key = PROVISIONING_REQUEST_ANNOTATION
        first = next((each[key] for each in annotations if key in each), "")
        return first == "true" or (first != "false" and self.all_gangs)
