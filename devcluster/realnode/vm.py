"""A real node in a virtual machine, with NUMA zones and cgroup v2, which this machine may lack.

Used by `cluster` for plans with a `VirtualMachine`. qemu emulates the machine, so no rights and no
/dev/kvm are needed. The kernel is Debian's. The files are this machine's, read-only, below a disk
in memory, so the node runs the same `init.sh` as other nodes.
"""

import platform
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from devcluster import build, checkout
from devcluster.build import Report
from devcluster.errors import BuildError, ControlPlaneError
from devcluster.processes import Command, Process
from devcluster.realnode import debian, initramfs
from devcluster.realnode.configuration import NodePlan, VirtualMachine
from devcluster.realnode.node import RealNode, Site

_QEMU: Final = "qemu-system-x86_64"
_QEMU_PACKAGE: Final = "qemu-system-x86"
_KERNEL_PACKAGE: Final = "linux-image-amd64"
"""A package that depends on the newest kernel. The kernel for clouds is smaller, but lacks 9p."""
_BOOT: Final = "devcluster/realnode/boot.sh"
_GATEWAY: Final = "10.77.0.254"
_SHELL_PORT: Final = 7777
"""Port in the node: each connection is a shell."""
_SHELL_BASE: Final = 17000
"""Port on loopback in the network of the cluster; node N has this port plus N."""
_KUBELET_PORT: Final = 10250
_MODULES: Final = "lib/modules"
_KERNEL_ARGUMENTS: Final = (
    "console=ttyS0", "quiet", "panic=-1", "random.trust_cpu=on",
    # Without these, programs read the time from an emulated timer, which takes most of the CPU
    # time.
    "tsc=reliable", "clocksource=tsc",
    # On a busy machine, the emulated timer is too late for the kernel's check.
    "no_timer_check",
    # Mitigations for real processors only slow down an emulated one.
    "mitigations=off", "nowatchdog", "audit=0", "apparmor=0", "psi=0", "ipv6.disable=1",
    "numa_balancing=disable", "rcupdate.rcu_expedited=1",
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A kernel of Debian."""

    image: Path
    modules: Path


def lacks() -> Iterator[str]:
    """Yield each reason why virtual machines cannot run here; none if they can."""
    if platform.machine() != "x86_64":
        yield f"virtual machines are x86-64, this machine is {platform.machine()}"
        return
    if shutil.which(_QEMU) is None:
        yield (
            f"there is no {_QEMU} (Debian: apt-get install --no-install-recommends {_QEMU_PACKAGE})"
        )


def kernel(report: Report) -> Kernel:
    """Return Debian's kernel, downloaded if needed.

    Raises:
        BuildError: the kernel cannot be downloaded; the text has the reason.
    """
    cache = build.cache_directory()
    unpacked = sorted((cache / "debian").glob("linux-image-*-amd64"))
    directory = unpacked[-1] if unpacked else debian.unpacked(_newest(), cache, report)
    (image,) = (directory / "boot").glob("vmlinuz-*")
    (modules,) = (directory / _MODULES).iterdir()
    return Kernel(image, modules)


class VirtualNode(RealNode):
    """A node in a virtual machine of its own."""

    runtime_s = 300.0

    def __init__(self, plan: NodePlan, site: Site, machine: VirtualMachine, kernel: Kernel) -> None:
        """Write the files of the node and start its machine."""
        self._machine, self._kernel = machine, kernel
        busybox = debian.unpacked("busybox-static", build.cache_directory(), print) / "bin/busybox"
        self._busybox = busybox
        shell = f"exec {busybox} nc -ll -p {_SHELL_PORT} -e /bin/sh"
        super().__init__(replace(plan, services={**plan.services, "shell": shell}), site)

    def run(self, *command: str, timeout_s: float = 60.0) -> str:
        """Run a command in the node and return its output.

        Raises:
            ControlPlaneError: the command failed, or the node does not answer; the text is the
                message.
        """
        script = f"""
export PATH={self._site.programs}:/usr/sbin:/usr/bin:/sbin:/bin
{shlex.join(command)} </dev/null 2>/run/errors-$$
code=$?
[ $code = 0 ] || cat /run/errors-$$
printf '\\n%d' $code
exit
"""
        try:
            answer = self._site.network.call(lambda: self._asked(script, timeout_s))
        except OSError as error:
            raise ControlPlaneError(f"{self.name}: {shlex.join(command)}: {error}") from error
        output, _, code = answer.rpartition("\n")
        if code != "0":
            shown = output.strip() or "no answer"
            raise ControlPlaneError(f"{self.name}: {shlex.join(command)}: {shown}")
        return output

    def kill(self, service: str) -> None:
        """Kill a service, as in a crash; it is restarted unless it is held."""
        self.run(str(self._busybox), "killall", "-9", service)

    def _asked(self, script: str, timeout_s: float) -> str:
        address = ("127.0.0.1", _SHELL_BASE + self.plan.number)
        with socket.create_connection(address, timeout_s) as connection:
            connection.sendall(script.encode())
            answer = b""
            while read := connection.recv(1 << 16):
                answer += read
        return answer.decode()

    def _start(self) -> Process:
        boot = [str(checkout.ROOT / _BOOT), str(self._directory), str(self._site.programs)]
        archive = self._directory / "initramfs"
        archive.write_bytes(
            initramfs.make(
                self._busybox,
                self._kernel.modules,
                shlex.join([*boot, self.plan.address, _GATEWAY]),
            )
        )
        arguments = [
            *(shutil.which("nice") or "nice", "--adjustment=5"),
            *(shutil.which(_QEMU) or _QEMU, "-accel", "tcg,thread=multi", "-M", "q35"),
            *("-cpu", "max", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
            *("-serial", "stdio", "-kernel", str(self._kernel.image), "-initrd", str(archive)),
            *("-append", " ".join(_KERNEL_ARGUMENTS)),
            *self._zones(),
            *_shared("root", Path("/"), "readonly=on,"),
            *_shared("node", self._directory, ""),
            *self._network(),
        ]
        command = Command(self.name, arguments, self.logs / "init.log")
        return Process(command, tethered=True, starter=self._site.network.threads)

    def _zones(self) -> Iterator[str]:
        machine = self._machine
        cpus, memory_mib = machine.cpus // machine.zones, machine.memory_mib // machine.zones
        yield from ("-smp", f"{machine.cpus},sockets={machine.zones}")
        yield from ("-m", f"{machine.memory_mib}M")
        for zone in range(machine.zones):
            yield from ("-object", f"memory-backend-ram,id=memory{zone},size={memory_mib}M")
            listed = f"cpus={zone * cpus}-{(zone + 1) * cpus - 1}"
            yield from ("-numa", f"node,nodeid={zone},{listed},memdev=memory{zone}")

    def _network(self) -> Iterator[str]:
        """Yield qemu's options of the network card: the guest reaches the cluster's network through
        qemu's sockets.
        """
        address = self.plan.address
        forwards = (
            f"hostfwd=tcp:{address}:{_KUBELET_PORT}-{address}:{_KUBELET_PORT}",
            f"hostfwd=tcp:127.0.0.1:{_SHELL_BASE + self.plan.number}-{address}:{_SHELL_PORT}",
        )
        network = f"user,id=network,net=10.77.0.0/24,host={_GATEWAY},{','.join(forwards)}"
        yield from ("-netdev", network, "-device", "virtio-net-pci,netdev=network,romfile=")


def _shared(tag: str, directory: Path, options: str) -> Iterator[str]:
    yield "-fsdev"
    yield f"local,id={tag},path={directory},{options}security_model=none,multidevs=remap"
    yield from ("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")


def _newest() -> str:
    """Return the name of the package with the newest kernel.

    Raises:
        BuildError: apt-cache does not know the package.
    """
    result = subprocess.run(  # noqa: S603  constant arguments
        ["apt-cache", "depends", "--important", _KERNEL_PACKAGE],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    for line in result.stdout.splitlines():
        if "Depends: linux-image-" in line:
            return line.split()[-1]
    raise BuildError(f"apt-cache knows no {_KERNEL_PACKAGE}: apt-get update")
