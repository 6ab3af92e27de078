"""A control plane and its real nodes, started and taken down as a whole."""

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any, Final, Self

from devcluster import build
from devcluster.build import Report
from devcluster.errors import ControlPlaneError
from devcluster.local import ServerBinaries
from devcluster.plane import Tools
from devcluster.realnode import cgroups, images, vm
from devcluster.realnode.configuration import NodePlan
from devcluster.realnode.node import RealNode, Site
from devcluster.realnode.plane import RealControlPlane
from devcluster.realnode.vm import VirtualNode

_READY_S: Final = 240.0
"""Seconds that a node may take to become Ready."""
_numbers = itertools.count(1)


class RealCluster:
    """A control plane and its nodes; the context manager stops all."""

    def __init__(
        self, state_dir: Path, report: Report, *, certificate_s: int | None = None
    ) -> None:
        """Build what is missing, and prepare; nothing runs before `start`.

        `certificate_s`: seconds for which a kubelet's certificate is valid; None: a year.

        Raises:
            BuildError: a program or an image is missing and cannot be built; the text names it.
        """
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
            state_dir=state_dir,
            report=report,
            certificate_s=certificate_s,
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
            ControlPlaneError: the node is not Ready in time; the text has the end of its log.
        """
        self._report(f"starting the node {plan.name}")
        node = self._started(plan)
        self.nodes[plan.name] = node
        node.wait_for_runtime()
        node.load(self._base)
        self.wait_ready(plan.name)
        return node

    def wait_ready(self, name: str) -> None:
        """Wait until the node `name` is Ready.

        Raises:
            ControlPlaneError: the node is not Ready in time.
        """
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

    def plan(self, number: int, **fields: Any) -> NodePlan:
        """Return the plan of the node with this number, from 1; `fields`: as in `NodePlan`."""
        name = f"node-{number}"
        # A virtual machine does not share its cgroups.
        cgroup = "/" if fields.get("machine") else f"/{self._tree}/{name}"
        return NodePlan(name, number, cgroup, **fields)

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

    def _started(self, plan: NodePlan) -> RealNode:
        if plan.machine is None:
            return RealNode(plan, self._site())
        return VirtualNode(plan, self._site(), plan.machine, vm.kernel(self._report))

    def _site(self) -> Site:
        plane = self.control_plane
        return Site(
            plane.state_dir / "nodes",
            self._programs,
            plane.network,
            self._tree,
            server_authority=(plane.state_dir / "certificates" / "apiserver.crt").read_bytes(),
            client_authority=plane.authority.certificate,
            token=plane.bootstrap_token,
        )


def _bindings() -> dict[str, object]:
    """Return the bindings that let kubelets request certificates and get them approved."""
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
