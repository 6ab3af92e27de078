"""Describes this machine as a node: its capacity, its identity, and its files that pods are given.

Source: what the kubelet reads by cAdvisor, Kubernetes 1.36.
"""

import os
import platform
import shutil
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bindery import __version__
from bindery.api import names
from bindery.nodeagent.beside.sources import NodeSources, SourceError
from bindery.nodeagent.containers.errors import ContainerError
from bindery.nodeagent.descriptions import NodeDescription
from bindery.nodeagent.hardware import KubeletSettings, with_machine
from bindery.nodeagent.kubeletside import deviceplugins
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.sockets.deviceplugins import KUBELET
from bindery.nodecore import sysfs
from bindery.nodecore.cgroups.system import Subsystems
from bindery.nodecore.container_manager import NodeConfig
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.pods import CPU, MEMORY
from bindery.nodecore.topology import policies

MARK: Final = "nodeagent.bindery.dev/node"
"""Label, with the value "true", of the nodes whose pods this agent runs."""
MOST_PODS: Final = 110

_KIB: Final = 1024
_MILLI: Final = 1000
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class MachineError(ContainerError):
    """Raised for a machine that cannot be a node as it is."""


@dataclass(frozen=True)
class NodeOptions:
    """The settings of this machine as a node.

    Attributes:
        root: the agent's directory, as the kubelet's `--root-dir`.
        port: where the agent serves logs and streams; None: nowhere.
        settings: fields of the kubelet's configuration.
        proc: where /proc is.
    """

    name: str
    address: str
    root: Path
    cgroup_root: str = "/"
    port: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    settings: KubeletSettings = field(default_factory=KubeletSettings)
    system: Path = Path("/sys/devices/system")
    proc: Path = Path("/proc")


def node_of(options: NodeOptions, runtime: str, found: Subsystems) -> ManagedNode:
    """Return this machine as a node; `runtime`: its name and version, `found`: its controllers.

    Raises:
        MachineError: a file is missing, swap is on, or the settings do not fit the machine.
    """
    _check_swap(options.proc)
    try:
        machine = sysfs.machine_of(NodeSources(system=options.system).hardware())
    except (SourceError, ConfigurationError) as error:
        raise MachineError(str(error)) from error
    cpus = sum(len(core.threads) for node in machine.nodes for core in node.cores)
    capacity = {
        CPU: cpus * _MILLI,
        MEMORY: memory_bytes(options.proc),
        "ephemeral-storage": shutil.disk_usage(_existing(options.root)).total,
        "pods": MOST_PODS,
    }
    # Features are declared by the kubelet's own code, which is not here.
    gates = {**options.settings.feature_gates, "NodeDeclaredFeatures": False}
    settings = options.settings.model_copy(update={"feature_gates": gates})
    try:
        made = with_machine(machine, capacity, settings)
    except ValueError as error:
        raise MachineError(f"the settings do not fit this machine: {error}") from error
    config = replace(made.config, cgroup_root=options.cgroup_root, subsystems=found)
    amounts = {name: _quantity(name, amount) for name, amount in config.capacity.items()}
    return ManagedNode(
        name=options.name,
        labels=_labels(options),
        resources=amounts,
        allocatable={
            name: _quantity(name, made.allocatable.get(name, config.capacity[name]))
            for name in amounts
        },
        address=options.address,
        machine=replace(made, config=config, is_reported=_has_zones(config)),
        mark=MARK,
        description=_description(options, runtime),
        port=options.port,
    )


def _has_zones(config: NodeConfig) -> bool:
    """Return whether it matters for pods which NUMA zones they get."""
    return len(config.machine.nodes) > 1 or config.topology_policy != policies.NONE


def memory_bytes(proc: Path) -> int:
    """Return the memory of the machine; raises MachineError."""
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "MemTotal":
                return int(rest.split()[0]) * _KIB
    except OSError as error:
        raise MachineError(f"{proc}/meminfo: {error.strerror}") from error
    raise MachineError(f"{proc}/meminfo has no MemTotal")


def check_plugins(directory: Path) -> None:
    """Raise MachineError if a kubelet serves plugins in `directory`: its own."""
    path = directory / deviceplugins.DIRECTORY / KUBELET
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return  # there is none, or one that was killed has left it
    raise MachineError(
        f"{path}: a kubelet, or another agent, serves plugins there: stop it, or choose another "
        "directory by --kubelet-dir"
    )


def _check_swap(proc: Path) -> None:
    lines = _read(proc / "swaps").splitlines()
    if len(lines) > 1:
        raise MachineError(
            "running with swap on is not supported: turn it off with `swapoff --all`"
        )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _quantity(name: str, amount: int) -> str:
    if name != CPU:
        return str(amount)
    return f"{amount}m" if amount % _MILLI else str(amount // _MILLI)


def _labels(options: NodeOptions) -> dict[str, str]:
    architecture = _architecture()
    own = {
        names.HOSTNAME_LABEL: options.name,
        "kubernetes.io/arch": architecture,
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
    }
    return own | options.labels | {MARK: "true"}


def _architecture() -> str:
    found = platform.machine()
    return _ARCHITECTURES.get(found, found)


def _description(options: NodeOptions, runtime: str) -> NodeDescription:
    release = {}
    for line in _read(Path("/etc/os-release")).splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    return NodeDescription(
        os_image=release.get("PRETTY_NAME", ""),
        kernel_version=os.uname().release,
        runtime=runtime,
        agent=f"bindery-{__version__}",
        architecture=_architecture(),
        machine_id=_read(Path("/etc/machine-id")).strip(),
        system_uuid=_read(Path("/sys/class/dmi/id/product_uuid")).strip(),
        boot_id=_read(options.proc / "sys/kernel/random/boot_id").strip(),
    )


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
