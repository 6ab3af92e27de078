"""The kubeconfig of the node: that of the bootstrap credentials, with the node's certificate."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

from bindery.kube.access import kubeconfig
from bindery.kube.errors import ConfigurationError
from bindery.nodeagent.identity.errors import IdentityError
from bindery.nodecore.certificates import bootstrap
from bindery.nodecore.certificates.bootstrap import BootstrapServer

_MODE: Final = 0o600


def check_own(file: Path, pem: Path) -> None:
    """Check that `file` is free, or the kubeconfig that uses the pair at `pem`.

    Raises:
        IdentityError: it is another kubeconfig; it is not replaced.
    """
    if not file.exists():
        return
    try:
        user = kubeconfig.read(file).user
        is_own = user is not None and user.path("client-certificate") == pem
    except ConfigurationError:
        is_own = not file.read_bytes().strip()
    if not is_own:
        raise IdentityError(
            f"{file} exists and does not use {pem}: remove it, or let --kubeconfig name another "
            "file for the node's credentials"
        )


def write(file: Path, bootstrap_file: Path, pem: Path) -> None:
    """Write the kubeconfig that uses the pair at `pem` on the server of `bootstrap_file`.

    Raises:
        ConfigurationError: the bootstrap kubeconfig cannot be used.
        OSError: the file cannot be written.
    """
    text = yaml.safe_dump(bootstrap.kubeconfig(_server(bootstrap_file), str(pem)))
    if file.exists() and file.read_text() == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = file.with_name(f"{file.name}.tmp")
    begun.unlink(missing_ok=True)
    with os.fdopen(os.open(begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE), "w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    begun.replace(file)


def _server(file: Path) -> BootstrapServer:
    cluster = kubeconfig.read(file).cluster
    authority: Any = cluster.path("certificate-authority")
    return BootstrapServer(
        cluster.text("server"),
        "" if authority is None else str(authority.absolute()),
        cluster.text("certificate-authority-data"),
        bool(cluster.value.get("insecure-skip-tls-verify")),
    )
