"""The agent beside a kubelet, inside a real node or on this machine, and how it is interrupted."""

import os
import signal
import sys
from dataclasses import dataclass
from typing import Final

from devcluster import checkout, kubeconfig, nodeaccount
from devcluster.components import Component
from devcluster.realnode import configuration
from devcluster.realnode.configuration import SHARED
from devcluster.realnode.node import RealNode
from devcluster.realnode.plane import RealControlPlane

SERVICE: Final = "beside"
_KUBECONFIG: Final = "beside.yaml"
_PID: Final = "/run/beside.pid"


def script(node: str) -> str:
    """Return the script of the service of `node`; the agent starts when it has its account."""
    return (
        f"until [ -e {SHARED}/{_KUBECONFIG} ]; do sleep 1; done\n"
        f"echo $$ >{_PID}\n"
        f"cd {SHARED}; export PYTHONPATH={checkout.ROOT}\n"
        f"exec {sys.executable} -P -m bindery.cli.main nodeagent beside --node-name={node}"
        f" --kubelet-config=/node/kubelet.yaml --kubeconfig={SHARED}/{_KUBECONFIG}"
    )


@dataclass(frozen=True)
class BesideService:
    """The agent of one node."""

    node: RealNode

    def start(self, plane: RealControlPlane) -> None:
        """Let the agent start; `nodeaccount.apply` has been called."""
        path = self.node.shared / _KUBECONFIG
        authority = kubeconfig.Server.read(plane.admin_kubeconfig).certificate_authority
        server = kubeconfig.Server(configuration.API_SERVER, authority)
        token = nodeaccount.token(plane, self.node.name)
        kubeconfig.write(path.with_suffix(".new"), server, nodeaccount.ACCOUNT, token)
        path.with_suffix(".new").replace(path)

    def kill(self) -> None:
        """Kill the agent with SIGKILL, and keep it stopped."""
        self.node.hold(SERVICE)
        self._signal("KILL")

    def restart(self) -> None:
        """Let it start again."""
        self.node.release(SERVICE)

    def halt(self) -> None:
        """Let the agent stand still."""
        self._signal("STOP")

    def go_on(self) -> None:
        """Let it go on."""
        self._signal("CONT")

    def log(self) -> str:
        """Return its output."""
        return (self.node.logs / f"{SERVICE}.log").read_text(errors="replace")

    def _signal(self, name: str) -> None:
        self.node.run("sh", "-c", f"kill -{name} $(cat {_PID})")


@dataclass(frozen=True)
class BesideProcess:
    """An agent that runs on this machine, beside the kubelet of a node there."""

    component: Component

    def kill(self) -> None:
        """Kill the agent with SIGKILL."""
        self.component.kill()

    def restart(self) -> None:
        """Start it again."""
        self.component.restart()

    def halt(self) -> None:
        """Let the agent stand still."""
        os.kill(self.component.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.component.process.pid, signal.SIGCONT)
