"""What can fail while pods run. The reasons are the kubelet's."""

from typing import Final

import grpc

CREATE_CONFIG: Final = "CreateContainerConfigError"
CREATE: Final = "CreateContainerError"
PRE_START: Final = "PreStartHookError"
RUN: Final = "RunContainerError"
CREATE_SANDBOX: Final = "CreatePodSandboxError"
POST_START: Final = "PostStartHookError"
CRASH_LOOP: Final = "CrashLoopBackOff"


class ContainerError(Exception):
    """A pod or a container cannot go on."""


class EndpointError(ContainerError):
    """The address of the runtime is not one, or no runtime serves there."""


class RuntimeCallError(ContainerError):
    """A call to the runtime got no answer in time, or an error.

    Attributes:
        code: the gRPC code.
    """

    def __init__(self, method: str, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details or code.name)
        self.method, self.code = method, code

    @property
    def is_not_found(self) -> bool:
        """Whether the container, sandbox or image is not there."""
        return self.code is grpc.StatusCode.NOT_FOUND


class StartError(ContainerError):
    """A container cannot be started now.

    Attributes:
        reason: one word, for the container's state.
        retry_at_s: when the next attempt is due, None for the usual pause.
    """

    def __init__(self, reason: str, message: str, retry_at_s: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_at_s = reason, retry_at_s


class ClaimsError(ContainerError):
    """The claims of a pod cannot be prepared or unprepared now."""
