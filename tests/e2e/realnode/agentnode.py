"""A real node whose pods Bindery's agent runs, in place of a kubelet."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devcluster import checkout
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import RUNTIME_SOCKET
from devcluster.realnode.node import RealNode

_SERVICE: Final = "kubelet"
"""The service that the agent stands for."""
_DEVICES: Final = {"devices": "exec sample-device-plugin"}


@contextmanager
def added(
    cluster: RealCluster,
    number: int = 3,
    *options: str,
    services: Mapping[str, str] = _DEVICES,
) -> Iterator[RealNode]:
    """Start the node with a number, and remove it afterwards.

    `options`: further ones of the agent. `services`: beside it, by default Kubernetes' sample
    device plugin.
    """
    plan = cluster.plan(number)
    arguments = [
        *("nodeagent", "run", *options, "--resolv-conf=/dev/null", "--root-dir=/var/lib/kubelet"),
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
            f"exec {sys.executable} -P -m bindery.cli.main {shlex.join(arguments)}",
        )
    )
    node = cluster.add_node(cluster.plan(number, services={_SERVICE: script, **services}))
    yield node
    cluster.nodes.pop(plan.name).crash()
    cluster.control_plane.kubectl("delete", "node", plan.name)


def kill(node: RealNode) -> int:
    """Kill the agent by SIGKILL; return its process id. The node starts it again."""
    program = Path(sys.executable).resolve().name
    (pid,) = node.pids(program)
    os.kill(pid, signal.SIGKILL)
    return pid
