"""A real node whose pods Bindery's agent runs, in place of a kubelet."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devcluster import checkout
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import RUNTIME_SOCKET
from devcluster.realnode.node import RealNode

NAME: Final = "node-3"
_SERVICE: Final = "kubelet"
"""The service that the agent stands for."""


@contextmanager
def added(cluster: RealCluster) -> Iterator[RealNode]:
    """Start the node with Kubernetes' sample device plugin, and remove it afterwards."""
    plan = cluster.plan(3)
    arguments = [
        *("nodeagent", "run", "--resolv-conf=/dev/null", "--root-dir=/var/lib/kubelet"),
        f"--container-runtime-endpoint=unix://{RUNTIME_SOCKET}",
        f"--node-name={plan.name}",
        f"--node-ip={plan.address}",
        "--client-ca-file=/node/ca.crt",
        f"--cgroup-root={plan.cgroup}",
        f"--kubeconfig={cluster.control_plane.admin_kubeconfig}",
    ]
    script = "\n".join(
        (
            f"until [ -S {RUNTIME_SOCKET} ]; do sleep 0.1; done",
            f"export PYTHONPATH={checkout.ROOT}",
            f"exec {sys.executable} -P -m bindery.cli.main {' '.join(arguments)}",
        )
    )
    services = {_SERVICE: script, "devices": "exec sample-device-plugin"}
    node = cluster.add_node(cluster.plan(3, services=services))
    yield node
    cluster.nodes.pop(NAME).crash()
    cluster.control_plane.kubectl("delete", "node", NAME)


def kill(node: RealNode) -> int:
    """Kill the agent by SIGKILL; return its process id. The node starts it again."""
    program = Path(sys.executable).resolve().name
    (pid,) = node.pids(program)
    os.kill(pid, signal.SIGKILL)
    return pid
