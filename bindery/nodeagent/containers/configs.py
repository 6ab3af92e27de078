"""The configurations of sandboxes and containers, as the runtime takes them.

Source: `generatePodSandboxConfig`, `generateContainerConfig` and `makeMounts`, Kubernetes 1.36. The
paths of logs are the kubelet's: `NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery.nodeagent.candidates import core_pod
from bindery.nodeagent.containers import hostfiles, labels, logfiles, security
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import CREATE_CONFIG, StartError
from bindery.nodeagent.containers.hostfiles import ClusterNames, Resolver
from bindery.nodeagent.containers.podspec import Mounted, RunContainer, RunPod
from bindery.nodeagent.containers.security import ImageUser, NodeLimits
from bindery.nodeagent.volumes.keeper import PodVolumePath
from bindery.nodecore.devices.options import RunOptions
from bindery.nodecore.lifecycle import CpusetConfig
from bindery.nodecore.pods import total
from bindery.nodecore.podsync.expansion import expand, references

HOSTS: Final = "/etc/hosts"
_PROPAGATION: Final = {
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}
_PROTOCOLS: Final = {"": cri.TCP, "TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}
_LOG: Final = re.compile(r"(\d+)\.log")
_MOST_KERNEL_NAME: Final = 64
_MODE: Final = 0o750
"""Of the directories of a pod, as in the kubelet. What is mounted in them has its own mode."""


@dataclass(frozen=True)
class AgentPlaces:
    """The directories of the agent. `root`: as the kubelet's `--root-dir`."""

    root: Path
    logs: Path

    def pod(self, uid: str) -> Path:
        """Return the directory of a pod."""
        return self.root / "pods" / uid

    def make(self, uid: str) -> None:
        """Make the directories of a pod, which only their owner enters; raises OSError.

        After a start of the agent, its volumes can have made some before.
        """
        own = self.pod(uid)
        for each in (own.parent, own, own / "volumes", own / "plugins", own / "containers"):
            each.mkdir(_MODE, parents=True, exist_ok=True)
            each.chmod(_MODE)

    def pod_logs(self, pod: RunPod) -> Path:
        """Return the directory with the logs of a pod."""
        meta = pod.metadata
        return logfiles.directory_of(self.logs, meta.namespace, meta.name, meta.uid)

    def log(self, pod: RunPod, container: str, attempt: int) -> Path:
        """Return the log of an attempt of a container."""
        return self.pod_logs(pod) / container / f"{attempt}.log"


@dataclass(frozen=True)
class NodeSurroundings:
    """What the configurations depend on beside the pod.

    Attributes:
        hosts: the content of the node's hosts file.
    """

    names: ClusterNames
    resolver: Resolver
    hosts: str
    limits: NodeLimits


def sandbox(
    pod: RunPod,
    attempt: int,
    cgroup: str,
    groups: Sequence[int],
    places: AgentPlaces,
    node: NodeSurroundings,
) -> cri.PodSandboxConfig:
    """Return the configuration of a sandbox.

    `cgroup`: the path of the pod's cgroup. `groups`: what the pod's volumes add to its groups.

    Raises:
        StartError: the pod wants its full name as the host's, which is too long for it.
    """
    meta, spec = pod.metadata, pod.spec
    found = hostfiles.resolver(pod, node.names, node.resolver)
    core = core_pod(pod)
    whole = security.limits(total(core), total(core, "limits"))
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=meta.name, uid=meta.uid, namespace=meta.namespace, attempt=attempt
        ),
        log_directory=str(places.pod_logs(pod)),
        dns_config=cri.DNSConfig(
            servers=found.servers, searches=found.searches, options=found.options
        ),
        labels=labels.of_pod(pod),
        annotations=meta.annotations,
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=cgroup,
            security_context=security.of_sandbox(pod, groups),
            sysctls={
                one.name.replace("/", "."): one.value
                for one in (spec.security_context.sysctls if spec.security_context else None) or ()
            },
            resources=whole,
            overhead=security.limits(core.overhead, core.overhead) if core.overhead else None,
        ),
    )
    if not spec.host_network:
        config.hostname = _kernel_name(pod, node.names)
    for container in spec.all_containers:
        for port in container.ports or ():
            if port.host_port:
                config.port_mappings.add(
                    protocol=_PROTOCOLS.get(port.protocol, cri.TCP),
                    container_port=port.container_port,
                    host_port=port.host_port,
                    host_ip=port.host_ip,
                )
    return config


def _kernel_name(pod: RunPod, names: ClusterNames) -> str:
    name, domain = hostfiles.hostname(pod), hostfiles.domain(pod, names)
    if not pod.spec.set_hostname_as_fqdn or not domain:
        return name
    full = f"{name}.{domain}"
    if len(full) > _MOST_KERNEL_NAME:
        raise StartError(
            "ConfigPodSandboxError",
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too "
            f"long ({_MOST_KERNEL_NAME} characters is the max, {len(full)} characters requested)",
        )
    return full


@dataclass(frozen=True)
class Start:
    """All that a new container is made from.

    Attributes:
        variables: with those of devices.
        volumes: by their names in the pod.
        sub_paths: the index of a mount -> its part of a volume, where it wants one.
        groups: what the pod's volumes add to its groups.
    """

    pod: RunPod
    container: RunContainer
    attempt: int
    image: str
    user: ImageUser
    variables: Mapping[str, str]
    volumes: Mapping[str, PodVolumePath]
    sub_paths: Mapping[int, Path]
    groups: Sequence[int]
    options: RunOptions
    cpuset: CpusetConfig
    has_own_cpus: bool = False


def container(start: Start, places: AgentPlaces, node: NodeSurroundings) -> cri.ContainerConfig:
    """Return the configuration of a container, and make its directories and files.

    Raises:
        StartError: the container's spec cannot be carried out.
        OSError: a directory cannot be made.
    """
    pod, wanted = start.pod, start.container
    variables = start.variables
    (places.pod_logs(pod) / wanted.name).mkdir(parents=True, exist_ok=True)
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=wanted.name, attempt=start.attempt),
        image=cri.ImageSpec(image=start.image, user_specified_image=wanted.image),
        command=[expand(one, variables) for one in wanted.command or ()],
        args=[expand(one, variables) for one in wanted.args or ()],
        working_dir=wanted.working_dir,
        envs=[
            cri.KeyValue(key=key, value=text.encode(errors="surrogateescape"))
            for key, text in variables.items()
        ],
        mounts=_mounts(start, places),
        devices=_devices(start),
        CDI_devices=[cri.CDIDevice(name=name) for name in start.options.cdi_devices],
        labels=labels.of_container(pod, wanted),
        annotations={
            **start.options.annotations,
            **labels.annotations(pod, wanted, start.attempt),
        },
        log_path=f"{wanted.name}/{start.attempt}.log",
        stdin=wanted.stdin,
        stdin_once=wanted.stdin_once,
        tty=wanted.tty,
        linux=_linux(start, node),
    )
    if wanted.lifecycle is not None and wanted.lifecycle.stop_signal:
        config.stop_signal = cri.Signal.Value(wanted.lifecycle.stop_signal)
    return config


def _devices(start: Start) -> list[cri.Device]:
    found = [
        cri.Device(
            container_path=one.container_path,
            host_path=one.host_path,
            permissions=one.permissions,
        )
        for one in start.options.devices
    ]
    for one in start.container.volume_devices or ():
        volume = _volume(start, one.name)
        permissions = "r" if volume.is_read_only else "mrw"
        found.append(
            cri.Device(
                container_path=one.device_path,
                host_path=str(volume.path),
                permissions=permissions,
            )
        )
    return found


def _linux(start: Start, node: NodeSurroundings) -> cri.LinuxContainerConfig:
    core = core_pod(start.pod)
    own = next(one for one in core.all_containers if one.name == start.container.name)
    return cri.LinuxContainerConfig(
        resources=security.of_resources(
            core,
            own,
            node.limits,
            start.cpuset,
            is_node_critical=security.is_node_critical(start.pod),
            has_own_cpus=start.has_own_cpus,
        ),
        security_context=security.of_container(
            start.pod, start.container, start.user, start.groups
        ),
    )


def _mounts(start: Start, places: AgentPlaces) -> list[cri.Mount]:
    pod, wanted = start.pod, start.container
    found = [_of_volume(start, *one) for one in enumerate(wanted.volume_mounts or ())]
    found += [
        cri.Mount(
            container_path=one.container_path, host_path=one.host_path, readonly=one.read_only
        )
        for one in start.options.mounts
    ]
    directory = places.pod(pod.metadata.uid)
    if not any(one.container_path == HOSTS for one in found):
        file = directory / "etc-hosts"
        found.append(cri.Mount(container_path=HOSTS, host_path=str(file)))
    if wanted.termination_message_path:
        messages = directory / "containers" / wanted.name
        messages.mkdir(_MODE, parents=True, exist_ok=True)
        file = messages / f"{start.attempt:08x}"
        file.touch()
        file.chmod(0o666)  # any user of the container writes there
        found.append(cri.Mount(container_path=wanted.termination_message_path, host_path=str(file)))
    return found


def _of_volume(start: Start, index: int, mount: Mounted) -> cri.Mount:
    volume = _volume(start, mount.name)
    path = start.sub_paths.get(index, volume.path)
    target = mount.mount_path
    if not target.startswith("/"):
        target = os.path.normpath(f"/{target}")
    return cri.Mount(
        container_path=target,
        host_path=str(path),
        readonly=mount.read_only or volume.is_read_only,
        propagation=_PROPAGATION.get(mount.mount_propagation or "", cri.PROPAGATION_PRIVATE),
    )


def _volume(start: Start, name: str) -> PodVolumePath:
    volume = start.volumes.get(name)
    if volume is None:
        raise StartError(CREATE_CONFIG, f'cannot find volume "{name}" to mount into container')
    return volume


def sub_path(mount: Mounted, variables: Mapping[str, str]) -> str:
    """Return the part of a volume that a mount wants, empty for the whole.

    Raises:
        StartError: a variable in it has no value.
    """
    if not mount.sub_path_expr:
        return mount.sub_path
    missing = [one for one in references(mount.sub_path_expr) if not variables.get(one)]
    if missing:
        names = ", ".join(sorted(missing))
        raise StartError(CREATE_CONFIG, f"missing value for {names}")
    return expand(mount.sub_path_expr, variables)


def attempt_by_logs(places: AgentPlaces, pod: RunPod, name: str) -> int:
    """Return the attempt after the last one that has a log; 0 without logs."""
    directory = places.pod_logs(pod) / name
    try:
        found = [_LOG.fullmatch(one.name) for one in directory.iterdir()]
    except OSError:
        return 0
    return max((int(one[1]) + 1 for one in found if one), default=0)
