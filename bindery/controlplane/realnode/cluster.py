"""A control plane with real nodes, in one network namespace.

The API server listens on the address of the Service `kubernetes`, so clients in pods reach it
without kube-proxy. Kubelets get their certificates by requests, as on any cluster.
"""

import itertools
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final, Self

from bindery.controlplane import authority, build, settings
from bindery.controlplane.build import Report
from bindery.controlplane.errors import ControlPlaneError
from bindery.controlplane.local import LocalControlPlane, ServerBinaries
from bindery.controlplane.plane import Tools
from bindery.controlplane.processes import Command, Process
from bindery.controlplane.realnode import cgroups, images
from bindery.controlplane.realnode.configuration import NodePlan
from bindery.controlplane.realnode.network import Network
from bindery.controlplane.realnode.node import RealNode

_PORT: Final = 443
_MOST_NODES: Final = 3
_READY_S: Final = 120.0
"""How long a node may take until it is Ready, in seconds."""
_NODE_GRACE_S: Final = 40
_numbers = itertools.count(1)


class RealControlPlane(LocalControlPlane):
    """A control plane for real nodes."""

    def __init__(
        self, binaries: ServerBinaries, tools: Tools, state_dir: Path, report: Report
    ) -> None:
        """Make the network namespace; nothing runs before `start`."""
        super().__init__(
            binaries, tools, state_dir=state_dir, report=report, node_grace_s=_NODE_GRACE_S
        )
        self.network = Network()
        self.network.run(["ip", "link", "add", "bindery", "type", "bridge"])
        addresses = [f"10.77.0.{number + 1}/24" for number in range(_MOST_NODES)]
        for address in ("10.96.0.1/32", *addresses):
            self.network.run(["ip", "address", "add", address, "dev", "bindery"])
        self.network.run(["ip", "link", "set", "bindery", "up"])
        self.network.run(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
        self.authority = authority.make(state_dir / "node-authority")
        self.bootstrap_token = secrets.token_urlsafe(32)

    def run(self, command: list[str], *, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """Run a client program inside the network namespace."""
        inherited = super().run
        return self.network.call(lambda: inherited(command, stdin=stdin, timeout_s=timeout_s))

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
        return settings.signing(super()._controller_manager_arguments(), self.authority)

    def _start_process(self, command: Command) -> Process:
        return Process(command, tethered=True, starter=self.network.threads)

    def _answers(self, url: str, token: str = "", authority: Path | None = None) -> bool:
        inherited = super()._answers
        return self.network.call(lambda: inherited(url, token, authority))


class RealCluster:
    """A control plane and its nodes; as a context manager it takes all down."""

    def __init__(self, state_dir: Path, report: Report) -> None:
        """Build what is missing, and prepare; nothing runs before `start`."""
        cgroups.remove_abandoned()
        servers = build.binaries(tuple(build.PACKAGES), report)
        kubelet = build.binaries(tuple(build.NODE_PROGRAMS), report)
        containers = build.binaries(
            tuple(build.CONTAINER_PROGRAMS), report, build.CONTAINERS_MODULE
        )
        self._programs = state_dir / "programs"
        self._programs.mkdir(parents=True)
        for name, path in {**kubelet, **containers}.items():
            (self._programs / name).symlink_to(path)
        self.control_plane = RealControlPlane(
            ServerBinaries(
                etcd=servers["etcd"],
                kube_apiserver=servers["kube-apiserver"],
                kube_controller_manager=servers["kube-controller-manager"],
                kube_scheduler=servers["kube-scheduler"],
            ),
            Tools(kubectl=servers["kubectl"], helm=servers["helm"]),
            state_dir,
            report,
        )
        self.nodes: dict[str, RealNode] = {}
        self._report = report
        self._tree = cgroups.tree_name(os.getpid(), next(_numbers))
        self._base = images.base(build.cache_directory(), state_dir, report)

    def start(self) -> Self:
        """Start the control plane and let kubelets join."""
        self.control_plane.start()
        self.control_plane.kubectl("apply", "--filename=-", stdin=json.dumps(_bindings()))
        return self

    def add_node(self, plan: NodePlan) -> RealNode:
        """Start a node and wait until it is Ready.

        Raises:
            ControlPlaneError: it is not Ready in time; the text has the end of its log.
        """
        plane = self.control_plane
        self._report(f"starting the node {plan.name}")
        node = RealNode(
            plan,
            plane.state_dir / "nodes" / plan.name,
            self._programs,
            plane.network,
            tree=self._tree,
            server_authority=(plane.state_dir / "certificates" / "apiserver.crt").read_bytes(),
            client_authority=plane.authority.certificate,
            token=plane.bootstrap_token,
        )
        self.nodes[plan.name] = node
        node.wait_for_runtime()
        node.load(self._base)
        self._wait_ready(plan.name)
        return node

    def plan(self, number: int, **fields: Any) -> NodePlan:
        """Return the plan of the node with this number, from 1; `fields`: as in `NodePlan`."""
        name = f"node-{number}"
        return NodePlan(name, number, f"/{self._tree}/{name}", **fields)

    def stop(self) -> None:
        """Take all down.

        Raises:
            ControlPlaneError: cgroups are left over.
        """
        for node in self.nodes.values():
            node.crash()
        self.nodes.clear()
        self.control_plane.stop()
        if left := cgroups.remove(self._tree):
            raise ControlPlaneError(f"these cgroups are still busy: {', '.join(map(str, left))}")

    def __enter__(self) -> Self:
        """Start the control plane."""
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_exception: object) -> None:
        """Take all down."""
        self.stop()

    def _wait_ready(self, name: str) -> None:
        deadline_s = time.monotonic() + _READY_S
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        while True:
            try:
                got = self.control_plane.kubectl("get", "node", name, f"--output=jsonpath={path}")
            except ControlPlaneError as error:
                got = str(error)
            if got == "True":
                return
            if time.monotonic() > deadline_s:
                raise ControlPlaneError(f"{name} is not Ready after {_READY_S:.0f} s: {got}")
            time.sleep(0.2)


def _bindings() -> dict[str, object]:
    """Return what lets kubelets ask for certificates, and have them approved."""
    requests = "system:certificates.k8s.io:certificatesigningrequests"
    wanted = (
        ("bootstrappers-ask", "system:node-bootstrapper", "system:bootstrappers"),
        ("bootstrappers-are-approved", f"{requests}:nodeclient", "system:bootstrappers"),
        ("nodes-are-renewed", f"{requests}:selfnodeclient", "system:nodes"),
    )
    items = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
            ],
        }
        for name, role, group in wanted
    ]  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": items}
