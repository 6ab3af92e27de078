"""A user with the role `edit` in one namespace, as the API server sees tenants."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bindery.kube.client import Client
from devcluster import kubeconfig
from devcluster.plane import ControlPlane

_ACCOUNT = "tenant"


def access(plane: ControlPlane, namespace: str) -> Path:
    """Create the account and its role binding; return its kubeconfig."""
    scope = f"--namespace={namespace}"
    plane.kubectl("create", "serviceaccount", _ACCOUNT, scope)
    subject = f"--serviceaccount={namespace}:{_ACCOUNT}"
    plane.kubectl("create", "rolebinding", _ACCOUNT, "--clusterrole=edit", subject, scope)
    token = plane.kubectl("create", "token", _ACCOUNT, scope, "--duration=1h").strip()
    path = plane.state_dir / "kubeconfigs" / f"{namespace}.kubeconfig"
    return kubeconfig.write(path, kubeconfig.Server.read(plane.admin_kubeconfig), _ACCOUNT, token)


@asynccontextmanager
async def tenant(plane: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    """Give a client with the rights of a tenant of `namespace`."""
    path = access(plane, namespace)
    async with Client.connect(path, user_agent="bindery-test-tenant/0") as client:
        yield client
