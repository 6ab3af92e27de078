"""Security contexts, namespaces and limits of containers, as the runtime takes them. Pure.

Source: the kubelet's kuberuntime package, Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import CREATE_CONFIG, StartError
from bindery.nodeagent.containers.podspec import (
    ContainerSecurity,
    PodSecurity,
    Profile,
    RunContainer,
    RunPod,
    SecurityLabels,
)
from bindery.nodecore.cgroups import conversions, oom, values
from bindery.nodecore.lifecycle import CpusetConfig
from bindery.nodecore.pods import CPU, MEMORY, Container, Pod, Resources

_MASKED: Final = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_UNMASKED: Final = "Unmasked"
_NODE_CRITICAL: Final = "system-node-critical"
_SECCOMP_ROOT: Final = "/var/lib/kubelet/seccomp"
_NO_CONTAINER: Final = ContainerSecurity()
_NO_POD: Final = PodSecurity()


@dataclass(frozen=True)
class ImageUser:
    """The user of an image: a number, or a name; neither is root."""

    uid: int | None = None
    name: str = ""


def namespaces(pod: RunPod) -> cri.NamespaceOption:
    """Return which namespaces the containers of a pod share."""
    spec = pod.spec
    pid = cri.NODE if spec.host_pid else cri.POD if spec.share_process_namespace else cri.CONTAINER
    return cri.NamespaceOption(
        network=cri.NODE if spec.host_network else cri.POD,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
        pid=pid,
    )


def of_sandbox(pod: RunPod, groups: Sequence[int] = ()) -> cri.LinuxSandboxSecurityContext:
    """Return the security context of a sandbox; `groups`: what the pod's volumes add."""
    own = pod.spec.security_context or _NO_POD
    context = cri.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod),
        privileged=any(
            one.security_context is not None and one.security_context.privileged
            for one in pod.spec.all_containers
        ),
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
        selinux_options=_labels(own.se_linux_options),
        supplemental_groups=[*_groups(own), *groups],
        supplemental_groups_policy=_groups_policy(own),
    )
    if own.run_as_user is not None:
        context.run_as_user.value = own.run_as_user
    if own.run_as_group is not None:
        context.run_as_group.value = own.run_as_group
    return context


def of_container(
    pod: RunPod, container: RunContainer, image: ImageUser, groups: Sequence[int] = ()
) -> cri.LinuxContainerSecurityContext:
    """Return the security context of a container; `groups`: what the pod's volumes add.

    Raises:
        StartError: the container must not run as root and would, or may.
    """
    whole = pod.spec.security_context or _NO_POD
    own = container.security_context or _NO_CONTAINER
    user = own.run_as_user if own.run_as_user is not None else whole.run_as_user
    group = own.run_as_group if own.run_as_group is not None else whole.run_as_group
    if own.run_as_non_root if own.run_as_non_root is not None else whole.run_as_non_root:
        _check_not_root(pod, container, user, image)
    capabilities = own.capabilities
    unmasked = own.proc_mount == _UNMASKED
    context = cri.LinuxContainerSecurityContext(
        capabilities=None
        if capabilities is None
        else cri.Capability(add_capabilities=capabilities.add, drop_capabilities=capabilities.drop),
        privileged=own.privileged,
        namespace_options=namespaces(pod),
        selinux_options=_labels(own.se_linux_options or whole.se_linux_options),
        readonly_rootfs=own.read_only_root_filesystem,
        supplemental_groups=[*_groups(whole), *groups],
        supplemental_groups_policy=_groups_policy(whole),
        no_new_privs=own.allow_privilege_escalation is False,
        masked_paths=() if unmasked else _MASKED,
        readonly_paths=() if unmasked else _READ_ONLY,
        seccomp=_seccomp(own, whole),
        apparmor=_profile(own.app_armor_profile or whole.app_armor_profile),
    )
    if user is not None:
        context.run_as_user.value = user
    elif image.name:
        context.run_as_username = image.name
    else:
        context.run_as_user.value = image.uid or 0
    if group is not None:
        context.run_as_group.value = group
    return context


def _check_not_root(
    pod: RunPod, container: RunContainer, user: int | None, image: ImageUser
) -> None:
    if user is not None:
        problem = "container's runAsUser breaks non-root policy" if user == 0 else ""
    elif image.name:
        problem = (
            f"container has runAsNonRoot and image has non-numeric user ({image.name}), "
            "cannot verify user is non-root"
        )
    else:
        problem = "" if image.uid else "container has runAsNonRoot and image will run as root"
    if problem:
        meta = pod.metadata
        where = f'pod: "{meta.name}_{meta.namespace}({meta.uid})", container: {container.name}'
        raise StartError(CREATE_CONFIG, f"{problem} ({where})")


def _labels(options: SecurityLabels | None) -> cri.SELinuxOption | None:
    if options is None:
        return None
    return cri.SELinuxOption(
        user=options.user, role=options.role, type=options.type, level=options.level
    )


def _groups(whole: PodSecurity) -> list[int]:
    own = [whole.fs_group] if whole.fs_group is not None else []
    return [*own, *(whole.supplemental_groups or ())]


def _groups_policy(whole: PodSecurity) -> str:
    return whole.supplemental_groups_policy or "Merge"


def _seccomp(own: ContainerSecurity, whole: PodSecurity) -> cri.SecurityProfile:
    profile = own.seccomp_profile or whole.seccomp_profile
    found = _profile(profile)
    if found is None:
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.Unconfined)
    if found.profile_type == cri.SecurityProfile.Localhost:
        found.localhost_ref = f"{_SECCOMP_ROOT}/{found.localhost_ref}"
    return found


def _profile(profile: Profile | None) -> cri.SecurityProfile | None:
    if profile is None:
        return None
    kind = cri.SecurityProfile.ProfileType.Value(profile.type)
    return cri.SecurityProfile(profile_type=kind, localhost_ref=profile.localhost_profile)


def limits(
    requests: Resources, upper: Resources, *, has_quota: bool = True
) -> cri.LinuxContainerResources:
    """Return CPU shares, quota and memory limit for requests and limits in `Resources`.

    Without a request, the limit of CPU is the request.
    """
    asked = requests.get(CPU, upper.get(CPU, 0))
    quota = conversions.quota_us(upper.get(CPU, 0))
    return cri.LinuxContainerResources(
        cpu_period=conversions.QUOTA_PERIOD_US,
        cpu_quota=quota if has_quota else conversions.UNLIMITED_QUOTA,
        cpu_shares=conversions.shares(asked),
        memory_limit_in_bytes=upper.get(MEMORY, 0),
    )


@dataclass(frozen=True)
class NodeLimits:
    """The machine's share in the limits of containers."""

    memory_bytes: int
    page_sizes: tuple[int, ...] = ()
    is_unified: bool = False


def of_resources(
    pod: Pod,
    container: Container,
    node: NodeLimits,
    cpuset: CpusetConfig,
    *,
    is_node_critical: bool = False,
    has_own_cpus: bool = False,
) -> cri.LinuxContainerResources:
    """Return the limits of a container; one with CPUs for itself has no quota."""
    found = limits(container.requests, _upper(pod, container), has_quota=not has_own_cpus)
    found.oom_score_adj = oom.score_adjustment(
        pod, container, node.memory_bytes, is_node_critical=is_node_critical
    )
    found.cpuset_cpus, found.cpuset_mems = cpuset.cpus, cpuset.mems
    pages: Mapping[int, int] = values.huge_page_limits(container.limits)
    for size in sorted({*node.page_sizes, *pages}):
        found.hugepage_limits.add(page_size=values.page_size_name(size), limit=pages.get(size, 0))
    if node.is_unified:
        # The kernel kills all processes of a container together.
        found.unified["memory.oom.group"] = "1"
    return found


def _upper(pod: Pod, container: Container) -> Resources:
    """Return the limits of a container; without one of its own, it has that of its pod."""
    whole = pod.limits or {}
    shared = [name for name in (CPU, MEMORY) if name in whole and not container.limits.get(name)]
    return {**container.limits, **{name: whole[name] for name in shared}}


def is_node_critical(pod: RunPod) -> bool:
    """Return whether the pod has the class that is killed last."""
    return pod.spec.priority_class_name == _NODE_CRITICAL
