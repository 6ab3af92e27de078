"""A real node whose pods Bindery's agent runs, in place of a kubelet."""

import json
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
from devcluster.realnode.configuration import RUNTIME_SOCKET, VirtualMachine
from devcluster.realnode.node import RealNode

DIRECTORY: Final = "/var/lib/kubelet"
FACTS: Final = {"providerID": "test://machine", "instanceType": "test.small", "zone": "test-1a"}
"""What the node's cloud provider, a file, knows of it."""
_SERVICE: Final = "kubelet"
"""The service that the agent stands for."""
_DEVICES: Final = {"devices": "exec sample-device-plugin"}


@contextmanager
def added(
    cluster: RealCluster,
    number: int = 3,
    *options: str,
    services: Mapping[str, str] = _DEVICES,
    machine: VirtualMachine | None = None,
    runtime: str = RUNTIME_SOCKET,
) -> Iterator[RealNode]:
    """Start the node with a number, and remove it afterwards.

    The agent has the credentials of any new node, and gets its own by them. `options`: further ones
    of the agent. `services`: beside it, by default Kubernetes' sample device plugin. `machine`: a
    virtual machine for the node. `runtime`: the socket of its runtime.
    """
    plan = cluster.plan(number)
    facts = "/node/shared/node.json"
    arguments = [
        *("nodeagent", "run", *options, "--resolv-conf=/dev/null", f"--root-dir={DIRECTORY}"),
        f"--container-runtime-endpoint=unix://{runtime}",
        f"--node-name={plan.name}",
        f"--node-ip={plan.address}",
        "--client-ca-file=/node/ca.crt",
        f"--cgroup-root={plan.cgroup}",
        "--bootstrap-kubeconfig=/node/bootstrap.kubeconfig",
        f"--cloud-node-file={facts}",
    ]
    script = "\n".join(
        (
            f"until [ -S {runtime} ]; do sleep 0.1; done",
            f"echo '{json.dumps(FACTS)}' >{facts}",
            f"export PYTHONPATH={checkout.ROOT}",
            f"exec {sys.executable} -P -m bindery.cli.main {shlex.join(arguments)}",
        )
    )
    own = {_SERVICE: script, **services}
    node = cluster.add_node(cluster.plan(number, services=own, machine=machine))
    yield node
    cluster.nodes.pop(plan.name).crash()
    cluster.control_plane.kubectl("delete", "node", plan.name)
    serving = "--field-selector=spec.signerName=kubernetes.io/kubelet-serving"
    cluster.control_plane.kubectl("delete", "certificatesigningrequests", serving)


def kill(node: RealNode) -> int:
    """Kill the agent by SIGKILL; return its process id. The node starts it again."""
    program = Path(sys.executable).resolve().name
    (pid,) = node.pids(program)
    os.kill(pid, signal.SIGKILL)
    return pid
