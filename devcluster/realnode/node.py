"""One real node: its files, its processes, and the operations of tests on it.

Started by `cluster`. The node's first process (`init.sh`) restarts containerd, the kubelet and the
further services; a file in `hold` keeps a service stopped.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from devcluster import checkout, kubeconfig
from devcluster.errors import ControlPlaneError
from devcluster.processes import Command, Process
from devcluster.realnode import cgroups, configuration
from devcluster.realnode.configuration import NodePlan
from devcluster.realnode.network import Network

_INIT: Final = "devcluster/realnode/init.sh"

_STATES: Final = ("cpu_manager_state", "memory_manager_state")


@dataclass(frozen=True)
class Site:
    """The properties that all nodes of one cluster share."""

    directory: Path
    """Directory with a subdirectory for each node."""
    programs: Path
    """The directory with kubelet, containerd, runc and the CNI plugins."""
    network: Network
    tree: str
    """Parent of the nodes' cgroups."""
    server_authority: bytes
    """The CA of the API server, in PEM."""
    client_authority: Path
    """The file with the CA of the clients of kubelets."""
    token: str
    """Token with which kubelets request certificates."""


class RealNode:
    """A running node."""

    runtime_s = 60.0
    """Seconds from the start of the node until containerd must serve."""

    def __init__(self, plan: NodePlan, site: Site) -> None:
        """Write the files of the node and start it."""
        self.plan = plan
        self.name = plan.name
        self._site = site
        self._directory = directory = site.directory / plan.name
        for each in ("hold", "services"):  # of an earlier node of this name
            shutil.rmtree(directory / each, ignore_errors=True)
        for each in ("logs", "hold", "services", "static-pods", "shared"):
            (directory / each).mkdir(parents=True, exist_ok=True)
        (directory / "containerd.toml").write_text(configuration.containerd(site.programs))
        (directory / "cni.conflist").write_text(configuration.network(plan))
        shutil.copyfile(site.client_authority, directory / "ca.crt")
        self._write_kubelet_configuration()
        server = kubeconfig.Server(configuration.API_SERVER, site.server_authority)
        kubeconfig.write(directory / "bootstrap.kubeconfig", server, "bootstrap", site.token)
        for name, script in configuration.services(plan, site.programs).items():
            (directory / "services" / name).write_text(script)
        self.process = self._start()

    @property
    def logs(self) -> Path:
        """The directory with the output of its services, one file each."""
        return self._directory / "logs"

    @property
    def shared(self) -> Path:
        """The directory that is `configuration.SHARED` in the node."""
        return self._directory / "shared"

    @property
    def static_pods(self) -> Path:
        """The directory from which the kubelet reads static pods."""
        return self._directory / "static-pods"

    @property
    def kubelet_configuration(self) -> Path:
        """The configuration file of the kubelet."""
        return self._directory / "kubelet.yaml"

    @property
    def root(self) -> Path:
        """The root directory of the node, as this machine reaches it while the node runs."""
        return Path(f"/proc/{self._init()}/root")

    @property
    def entrance(self) -> list[str]:
        """The command prefix that runs a command in the node, while the node runs."""
        namespaces = ("--mount", "--pid", "--net", "--root", "--wd=/")
        path = f"PATH={self._site.programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        return ["nsenter", f"--target={self._init()}", *namespaces, "--", "env", path]

    def run(self, *command: str, timeout_s: float = 60.0) -> str:
        """Run a command in the node and return its output.

        Raises:
            ControlPlaneError: the command failed; the text is its message.
        """
        result = subprocess.run(  # noqa: S603  the callers build the commands
            [*self.entrance, *command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if result.returncode != 0:
            raise ControlPlaneError(f"{self.name}: {' '.join(command)}: {result.stderr.strip()}")
        return result.stdout

    def load(self, archive: Path) -> None:
        """Import the images of an archive."""
        socket = f"--address={configuration.RUNTIME_SOCKET}"
        copy = self.shared / archive.name
        shutil.copyfile(archive, copy)
        self.run(
            "ctr",
            socket,
            "--namespace=k8s.io",
            "images",
            "import",
            f"{configuration.SHARED}/{copy.name}",
        )
        copy.unlink()

    def wait_for_runtime(self) -> None:
        """Wait until containerd serves."""
        socket = f"--address={configuration.RUNTIME_SOCKET}"

        def serves() -> bool:
            try:
                self.run("ctr", socket, "version")
            except ControlPlaneError:
                return False
            return True

        self.process.wait_until(serves, "containerd", self.runtime_s)

    def kill(self, service: str) -> None:
        """Kill a service, as in a crash; it is restarted unless it is held."""
        for pid in self.pids(service):
            os.kill(pid, signal.SIGKILL)

    def pids(self, service: str) -> list[int]:
        """Return the process IDs of the program `service` in this node, in the numbers of this
        machine.
        """
        namespace = Path(f"/proc/{self._init()}/ns/pid").readlink()
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if (each / "ns/pid").readlink() == namespace:
                    program = (each / "exe").readlink().name
                    found += [int(each.name)] if program == service else []
            except OSError:
                continue  # it has ended
        return found

    def hold(self, service: str) -> None:
        """Keep a service stopped after its next end."""
        (self._directory / "hold" / service).touch()

    def release(self, service: str) -> None:
        """Allow a service to run again."""
        (self._directory / "hold" / service).unlink(missing_ok=True)

    def reconfigure(self, kubelet: Mapping[str, Any]) -> None:
        """Start the kubelet again with other fields in its configuration, and without pods.

        The kubelet refuses to start with the state of another policy, so the state is deleted too.
        """
        self.plan = replace(self.plan, kubelet=kubelet)
        self._write_kubelet_configuration()
        self.hold("kubelet")
        self.kill("kubelet")
        self.run("rm", "-f", *(f"/var/lib/kubelet/{name}" for name in _STATES))
        self.release("kubelet")

    def crash(self) -> None:
        """End the node as in a loss of power: all processes at once, and the disk."""
        self.process.kill()

    def _write_kubelet_configuration(self) -> None:
        content = configuration.kubelet(self.plan, "/node/ca.crt")
        self.kubelet_configuration.write_text(content)

    def _start(self) -> Process:
        cgroups.make(self._site.tree, self.name)
        arguments = [
            shutil.which("unshare") or "unshare",
            *("--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL"),
            *(
                "/bin/sh",
                str(checkout.ROOT / _INIT),
                str(self._directory),
                str(self._site.programs),
            ),
        ]
        log = self.logs / "init.log"
        command = Command(self.name, arguments, log)
        return Process(command, tethered=True, starter=self._site.network.threads)

    def _init(self) -> int:
        """Return the process ID of the node's first process, in the numbers of this machine."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        deadline_s = time.monotonic() + 10
        while True:
            self.process.check()
            if found := children.read_text().split():
                return int(found[0])
            if time.monotonic() > deadline_s:
                raise self.process.error("has no first process")
            time.sleep(0.02)
