"""Kubeconfig files with one cluster, one user and one token.

Written by `local` for the administrator and by `install` for each ServiceAccount. The user's own
kubeconfig and current context are never changed.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from devcluster.errors import ControlPlaneError


@dataclass(frozen=True)
class Server:
    """Address and certificate authority of an API server."""

    url: str
    certificate_authority: bytes
    """PEM, one or more certificates."""

    @classmethod
    def read(cls, kubeconfig: Path) -> Self:
        """Return the server of the current context of `kubeconfig`."""
        try:
            document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
            contexts = {item["name"]: item["context"] for item in document["contexts"]}
            clusters = {item["name"]: item["cluster"] for item in document["clusters"]}
            cluster = clusters[contexts[document["current-context"]]["cluster"]]
            if "certificate-authority-data" in cluster:
                authority = base64.b64decode(cluster["certificate-authority-data"])
            else:
                path = kubeconfig.parent / cluster["certificate-authority"]
                authority = path.read_bytes()
            return cls(cluster["server"], authority)
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            raise ControlPlaneError(
                f"{kubeconfig} has no usable current context with a certificate authority: {error}"
            ) from error


def write(path: Path, server: Server, user: str, token: str) -> Path:
    """Write a kubeconfig for `user` to `path`, readable by its owner only; return `path`."""
    authority = base64.b64encode(server.certificate_authority).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bindery",
        "clusters": [
            {
                "name": "bindery",
                "cluster": {"server": server.url, "certificate-authority-data": authority},
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "bindery", "context": {"cluster": "bindery", "user": user}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # JSON is also YAML, and its form is unique.
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return path
