"""A control plane in a network namespace of its own, where kubelets join.

The API server listens on the address of its own Service, so clients in pods reach it without
kube-proxy. Kubelets request their certificates, as on any cluster.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from devcluster import authority, settings
from devcluster.build import Report
from devcluster.local import LocalControlPlane, ServerBinaries
from devcluster.plane import Tools
from devcluster.processes import Command, Process
from devcluster.realnode.network import Network

T = TypeVar("T")
MOST_NODES: Final = 5
_PORT: Final = 443
_NODE_GRACE_S: Final = 40
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
"""Setting of the network namespace of the thread that opens the file."""


class RealControlPlane(LocalControlPlane):
    """A control plane for real nodes."""

    def __init__(
        self,
        binaries: ServerBinaries,
        tools: Tools,
        *,
        state_dir: Path,
        report: Report,
        certificate_s: int | None = None,
    ) -> None:
        """Make the network namespace; nothing runs before `start`.

        `certificate_s`: seconds for which a kubelet's certificate is valid; None: a year.
        """
        super().__init__(
            binaries,
            tools,
            state_dir=state_dir,
            report=report,
            node_grace_s=_NODE_GRACE_S,
        )
        self.network = Network()
        self.network.run(["ip", "link", "add", "bindery", "type", "bridge"])
        addresses = [f"10.77.0.{number + 1}/24" for number in range(MOST_NODES)]
        for address in ("10.96.0.1/32", *addresses):
            self.network.run(["ip", "address", "add", address, "dev", "bindery"])
        self.network.run(["ip", "link", "set", "bindery", "up"])
        self.network.call(lambda: _FORWARDING.write_text("1"))
        self.authority = authority.make(state_dir / "node-authority")
        self._certificate_s = certificate_s
        self.bootstrap_token = secrets.token_urlsafe(32)

    def inside(self, function: Callable[[], T]) -> T:
        """Call `function` inside the network namespace and return its result."""
        return self.network.call(function)

    def start_process(self, command: Command, *, tethered: bool) -> Process:
        """Start a process inside the network namespace."""
        return Process(command, tethered=tethered, starter=self.network.threads)

    def stop(self) -> None:
        """Stop everything, and end the network namespace."""
        super().stop()
        self.network.close()

    def _choose_api_port(self) -> int:
        return _PORT

    def _tokens(self) -> list[str]:
        return [*super()._tokens(), f'{self.bootstrap_token},boot,boot,"system:bootstrappers"']

    def _api_server_arguments(self) -> list[str]:
        return settings.for_real_nodes(super()._api_server_arguments(), self.authority)

    def _controller_manager_arguments(self) -> list[str]:
        arguments = super()._controller_manager_arguments()
        return settings.signing(arguments, self.authority, self._certificate_s)
