"""A user with the chart's role for readers and nothing else."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devcluster import kubeconfig
from devcluster.install import NAMESPACE, RELEASE, render
from devcluster.plane import ControlPlane


@contextmanager
def reader(plane: ControlPlane, node_pool: str = "") -> Iterator[Path]:
    """Give the kubeconfig of a reader of a release whose scheduler has `node_pool`."""
    name = f"reader-{secrets.token_hex(3)}"
    values = {"scheduler": {"configuration": {"nodePool": node_pool}}} if node_pool else {}
    (role,) = (
        each
        for each in render(plane, values)
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", f"{RELEASE}-reader")  # type: ignore[index]  # a manifest
    )
    plane.kubectl("create", "-f", "-", stdin=json.dumps({**role, "metadata": {"name": name}}))
    plane.kubectl("create", "serviceaccount", name, f"--namespace={NAMESPACE}")
    account = f"--serviceaccount={NAMESPACE}:{name}"
    plane.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    token = plane.kubectl("create", "token", name, f"--namespace={NAMESPACE}")
    path = plane.state_dir / "kubeconfigs" / f"{name}.kubeconfig"
    server = kubeconfig.Server.read(plane.admin_kubeconfig)
    yield kubeconfig.write(path, server, name, token.strip())
    plane.kubectl("delete", f"clusterrolebinding/{name}", f"clusterrole/{name}")
    plane.kubectl("delete", f"serviceaccount/{name}", f"--namespace={NAMESPACE}")
