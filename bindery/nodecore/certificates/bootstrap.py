"""The first client certificate: the file of its key, and the kubeconfig that uses it."""

from dataclasses import dataclass
from typing import Any, Final

KEY_FILE: Final = "kubelet-client.key.tmp"
"""Keeps the key of the first request, so that a restart sends the same request."""

_CLUSTER: Final = "default-cluster"
_USER: Final = "default-auth"
_CONTEXT: Final = "default-context"


@dataclass(frozen=True)
class BootstrapServer:
    """The API server of the bootstrap kubeconfig.

    Attributes:
        ca_file: the file of its certificate authority, empty without one.
        ca_data: the certificate authority itself in base64, empty without it.
        is_insecure: whether its certificate is not verified.
    """

    server: str
    ca_file: str = ""
    ca_data: str = ""
    is_insecure: bool = False


def kubeconfig(cluster: BootstrapServer, pem_path: str) -> dict[str, Any]:
    """Return the kubeconfig that uses the pair at `pem_path`."""
    where: dict[str, Any] = {"server": cluster.server}
    if cluster.is_insecure:
        where["insecure-skip-tls-verify"] = True
    if cluster.ca_file:
        where["certificate-authority"] = cluster.ca_file
    elif cluster.ca_data:
        where["certificate-authority-data"] = cluster.ca_data
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": where}],
        "users": [
            {"name": _USER, "user": {"client-certificate": pem_path, "client-key": pem_path}}
        ],
        "contexts": [
            {
                "name": _CONTEXT,
                "context": {"cluster": _CLUSTER, "user": _USER, "namespace": "default"},
            }
        ],
        "current-context": _CONTEXT,
    }
