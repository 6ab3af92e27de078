"""Declares what decisions about containers read: the rules of a pod, and its runtime state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"


@dataclass(frozen=True)
class ExitCodeRule:
    """`v1.ContainerRestartRule`: what follows from an exit code.

    Attributes:
        action: `Restart` is the action that is carried out.
        operator: `In` or `NotIn`.
    """

    action: str
    operator: str
    exit_codes: Sequence[int]

    def matches(self, exit_code: int) -> bool:
        """Return whether the rule applies to `exit_code`."""
        is_listed = exit_code in self.exit_codes
        return is_listed if self.operator == "In" else self.operator == "NotIn" and not is_listed


@dataclass(frozen=True)
class ContainerRules:
    """A container of a pod, as far as its starts and its status depend on it.

    Attributes:
        restart_policy: the container's own, None for the pod's.
        definition: changes when the runtime's container no longer fits: a hash of name and image.
    """

    name: str
    image: str = ""
    restart_policy: str | None = None
    exit_code_rules: Sequence[ExitCodeRule] = ()
    has_startup_probe: bool = False
    has_readiness_probe: bool = False
    definition: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container with these rules is a sidecar."""
        return self.restart_policy == ALWAYS


@dataclass(frozen=True)
class PodRules:
    """A pod, as far as the starts of its containers and its status depend on it."""

    containers: Sequence[ContainerRules]
    init_containers: Sequence[ContainerRules] = ()
    restart_policy: str = ALWAYS
    host_network: bool = False
    is_deleted: bool = False
    readiness_gates: Sequence[str] = ()

    @property
    def restarts_on_failure(self) -> bool:
        """Whether a container that has failed is started again."""
        return self.restart_policy != NEVER


class RuntimeState(StrEnum):
    """The state of a container in the runtime."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class RuntimeUser:
    """The user of the first process of a container."""

    uid: int
    gid: int
    groups: Sequence[int] = ()


@dataclass(frozen=True)
class RuntimeLimits:
    """The limits of a container by its runtime; 0: none, or the runtime does not report it."""

    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_limit_bytes: int = 0


NO_LIMITS: Final = RuntimeLimits()


@dataclass(frozen=True)
class RuntimeContainer:
    """A container in the runtime; times are seconds since the epoch, 0 for none.

    Attributes:
        id: the runtime's identifier with the runtime's name: `containerd://…`.
        attempt: how often a container of the name was started before.
        definition: as in `ContainerRules`, when the container was created; empty if unknown.
    """

    id: str
    name: str
    state: RuntimeState
    attempt: int = 0
    created_s: float = 0.0
    started_s: float = 0.0
    finished_s: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_ref: str = ""
    definition: str = ""
    user: RuntimeUser | None = None
    limits: RuntimeLimits = NO_LIMITS


@dataclass(frozen=True)
class RuntimeSandbox:
    """A sandbox in the runtime. `attempt`: how many sandboxes the pod had before."""

    id: str
    is_ready: bool
    attempt: int = 0
    created_s: float = 0.0
    addresses: Sequence[str] = ()
    host_network: bool = False


@dataclass(frozen=True)
class RuntimePod:
    """A pod in the runtime: its sandboxes and containers, the newest first."""

    sandboxes: Sequence[RuntimeSandbox] = ()
    containers: Sequence[RuntimeContainer] = ()

    def container(self, name: str) -> RuntimeContainer | None:
        """Return the newest container of the name, None if there is none."""
        return next((one for one in self.containers if one.name == name), None)

    @property
    def running(self) -> list[RuntimeContainer]:
        """The containers that run."""
        return [one for one in self.containers if one.state is RuntimeState.RUNNING]

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses of the newest sandbox, if it is ready."""
        newest = next(iter(self.sandboxes), None)
        return newest.addresses if newest is not None and newest.is_ready else ()


class ProbeVerdict(StrEnum):
    """The result of the probes of a container, when thresholds are counted."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ProbeVerdicts:
    """The results of probes, by the id of the container; a probe that has not run has none."""

    startup: Mapping[str, ProbeVerdict] = field(default_factory=dict)
    liveness: Mapping[str, ProbeVerdict] = field(default_factory=dict)
    readiness: Mapping[str, ProbeVerdict] = field(default_factory=dict)


NO_VERDICTS: Final = ProbeVerdicts()
