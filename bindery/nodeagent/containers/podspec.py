"""The fields of a pod that the agent carries out, or passes to the runtime.

`fields` has the table of all fields of the API; those without a struct here are refused, or are for
other components. The names and meanings are those of Kubernetes' API reference.
"""

from typing import Final

import msgspec

from bindery.kube.objects.podspec import (
    ContainerPort,
    PodResourceClaim,
    RestartRule,
    VolumeMount,
)
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Condition, PodClaimStatus
from bindery.nodeagent.pod_objects import (
    AgentPod,
    AgentPodSpec,
    AgentPodStatus,
    NodeContainer,
    PodSecurityContext,
    Sysctl,
    Variable,
)
from bindery.nodeagent.volumes.sources import AmountReference, FieldReference, PodVolumeSource


class KeySelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ValueSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`EnvVarSource`."""

    field_ref: FieldReference | None = None
    resource_field_ref: AmountReference | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class SourcedVariable(Variable, frozen=True, rename="camel", kw_only=True, gc=False):
    """`EnvVar`."""

    value_from: ValueSource | None = None


class ObjectSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A whole ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class VariablesSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`EnvFromSource`."""

    prefix: str = ""
    config_map_ref: ObjectSelector | None = None
    secret_ref: ObjectSelector | None = None


class ExecAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Runs a command in the container."""

    command: list[str] = msgspec.field(default_factory=list)


class HttpHeader(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A header of a request."""

    name: str = ""
    value: str = ""


class HttpGetAction(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Sends a GET request."""

    path: str = ""
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: list[HttpHeader] | None = None


class TcpAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Opens a connection."""

    port: int | str = 0
    host: str = ""


class GrpcAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Asks the standard health service."""

    port: int = 0
    service: str = ""


class SleepAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Waits."""

    seconds: int = 0


class Hook(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`LifecycleHandler`."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpAction | None = None
    sleep: SleepAction | None = None


class ContainerHooks(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`Lifecycle`."""

    post_start: Hook | None = None
    pre_stop: Hook | None = None
    stop_signal: str = ""


class ProbeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`Probe`, with the defaults of the API server."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpAction | None = None
    grpc: GrpcAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Capabilities beside the runtime's own."""

    add: list[str] | None = None
    drop: list[str] | None = None


class SecurityLabels(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`SELinuxOptions`."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class Profile(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`SeccompProfile` or `AppArmorProfile`."""

    type: str = ""
    localhost_profile: str = ""


class ContainerSecurity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`SecurityContext`."""

    capabilities: Capabilities | None = None
    privileged: bool = False
    se_linux_options: SecurityLabels | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool | None = None
    proc_mount: str = ""
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None


class SysctlValue(Sysctl, frozen=True, rename="camel", kw_only=True, gc=False):
    """A kernel parameter with its value."""

    value: str = ""


class PodSecurity(PodSecurityContext, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodSecurityContext`."""

    sysctls: list[SysctlValue] | None = None  # type: ignore[assignment]  # read only
    se_linux_options: SecurityLabels | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: list[int] | None = None
    supplemental_groups_policy: str | None = None
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None


class Mounted(VolumeMount, frozen=True, rename="camel", kw_only=True, gc=False):
    """`VolumeMount`."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str | None = None


class UsedDevice(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`VolumeDevice`."""

    name: str = ""
    device_path: str = ""


class Port(ContainerPort, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerPort`."""

    name: str = ""
    container_port: int = 0


class ExitCodes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`ContainerRestartRuleOnExitCodes`."""

    operator: str = ""
    values: list[int] | None = None


class ExitRule(RestartRule, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerRestartRule`."""

    exit_codes: ExitCodes | None = None


class RunContainer(NodeContainer, frozen=True, rename="camel", kw_only=True, gc=False):
    """`Container`, as far as the agent carries it out."""

    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str = ""
    ports: list[Port] | None = None  # type: ignore[assignment]  # read only
    env: list[SourcedVariable] | None = None  # type: ignore[assignment]  # read only
    env_from: list[VariablesSource] | None = None
    restart_policy_rules: list[ExitRule] | None = None  # type: ignore[assignment]  # read only
    volume_mounts: list[Mounted] | None = None  # type: ignore[assignment]  # read only
    volume_devices: list[UsedDevice] | None = None
    liveness_probe: ProbeSpec | None = None
    readiness_probe: ProbeSpec | None = None
    startup_probe: ProbeSpec | None = None
    lifecycle: ContainerHooks | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    image_pull_policy: str = "IfNotPresent"
    security_context: ContainerSecurity | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class HostAlias(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Names of an address in the hosts file."""

    ip: str = ""
    hostnames: list[str] | None = None


class DnsOption(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`PodDNSConfigOption`."""

    name: str = ""
    value: str | None = None


class DnsSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`PodDNSConfig`."""

    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[DnsOption] | None = None


class Named(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`LocalObjectReference`."""

    name: str = ""


class RunPodSpec(AgentPodSpec, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodSpec`, as far as the agent carries it out."""

    containers: list[RunContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]  # read only
    init_containers: list[RunContainer] | None = None  # type: ignore[assignment]  # read only
    ephemeral_containers: list[Named] | None = None
    volumes: list[PodVolumeSource] | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = 30
    dns_policy: str = "ClusterFirst"
    dns_config: DnsSettings | None = None
    service_account_name: str = ""
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    share_process_namespace: bool = False
    security_context: PodSecurity | None = None
    image_pull_secrets: list[Named] | None = None
    hostname: str = ""
    hostname_override: str | None = None
    subdomain: str = ""
    set_hostname_as_fqdn: bool = msgspec.field(default=False, name="setHostnameAsFQDN")
    host_aliases: list[HostAlias] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    priority_class_name: str = ""
    runtime_class_name: str | None = None
    enable_service_links: bool = True

    @property
    def all_containers(self) -> list[RunContainer]:
        """The init containers and then the app containers."""
        return [*(self.init_containers or ()), *self.containers]


class EndedState(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerStateTerminated`."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class RunningState(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerStateRunning`."""

    started_at: str | None = None


class WaitingState(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerStateWaiting`."""

    reason: str = ""
    message: str = ""


class WrittenState(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerState`."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: EndedState | None = None


class WrittenLinuxUser(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`LinuxContainerUser`."""

    uid: int = 0
    gid: int = 0
    supplemental_groups: list[int] | None = None


class WrittenUser(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`ContainerUser`."""

    linux: WrittenLinuxUser | None = None


class WrittenStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ContainerStatus`, as the agent has written it."""

    name: str = ""
    state: WrittenState = msgspec.field(default_factory=WrittenState)
    last_state: WrittenState = msgspec.field(default_factory=WrittenState)
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    user: WrittenUser | None = None


class RunPodStatus(AgentPodStatus, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodStatus`, as far as the agent reads it."""

    conditions: list[Condition] | None = None
    reason: str = ""
    message: str = ""
    resource_claim_statuses: list[PodClaimStatus] | None = None
    container_statuses: list[WrittenStatus] | None = None
    init_container_statuses: list[WrittenStatus] | None = None


class RunPod(AgentPod, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod that runs on this node."""

    spec: RunPodSpec = msgspec.field(default_factory=RunPodSpec)
    status: RunPodStatus = msgspec.field(default_factory=RunPodStatus)

    @property
    def is_being_deleted(self) -> bool:
        """Whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None


# A node does not forget an unreadable pod.
RUN_PODS: Final = PODS.decoded_as(RunPod, held=lambda pod, _: pod)
