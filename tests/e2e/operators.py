"""JobSet's and LeaderWorkerSet's own controllers as processes, with their definitions and webhooks.

The API server calls their webhooks by loopback. They run with the rights of the administrator.
"""

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bindery.binder.webhook.certificates import Bundle, Lifetimes, renewed
from devcluster import build, published
from devcluster.components import Component
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from devcluster.processes import Command
from devcluster.published import Published
from tests.definitions import install_files


@dataclass(frozen=True)
class Operator:
    """One operator."""

    name: str
    """Of its binary."""
    definitions: str
    """What its definitions are called in `published`."""
    configuration: str
    """The API version of its configuration file."""
    webhooks: Published
    pod_label: str
    """The label of its pods; its webhooks are called for these only, as in its own manifests."""


JOBSET = Operator(
    "jobset",
    "JobSet",
    "config.jobset.x-k8s.io/v1alpha1",
    Published("sigs.k8s.io/jobset", "config/components/webhook"),
    "jobset.sigs.k8s.io/jobset-name",
)
LWS = Operator(
    "lws",
    "LeaderWorkerSet",
    "config.lws.x-k8s.io/v1alpha1",
    Published("sigs.k8s.io/lws", "config/webhook"),
    "leaderworkerset.sigs.k8s.io/name",
)


@contextmanager
def running(plane: ControlPlane, operators: Sequence[Operator]) -> Iterator[None]:
    """Run operators, and remove their webhooks again at the end."""
    binaries = build.binaries(tuple(build.OPERATORS), print, build.OPERATORS_MODULE)
    started: list[Component] = []
    applied: list[str] = []
    try:
        for operator in operators:
            install_definitions(plane, [operator.definitions])
            port = free_port()
            started.append(_start(plane, operator, binaries[operator.name], port))
        for component in started:
            component.wait_ready()
        for operator, component in zip(operators, started, strict=True):
            directory = component.log.parent / operator.name
            applied.append(_apply_webhooks(plane, operator, directory))
        yield
    finally:
        for text in applied:
            plane.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text)
        for component in started:
            component.stop()


def install_definitions(
    plane: ControlPlane, names: Sequence[str], kinds: Sequence[str] = ()
) -> None:
    """Install the definitions of the operators `names`, and wait until they are served.

    `kinds`: the plural names of the needed kinds. Default: all.
    """
    files = [file for file in published.definition_files(names, print) if _defines(file)]
    chosen = [file for file in files if not kinds or file.stem.endswith(tuple(kinds))]
    install_files(plane, chosen)


def _defines(file: Path) -> bool:
    return "kind: CustomResourceDefinition\n" in file.read_text(encoding="utf-8")


def _start(plane: ControlPlane, operator: Operator, binary: Path, port: int) -> Component:
    """Start its process; its certificate and the port of its webhooks are beside its log."""
    logs = plane.state_dir / "logs"
    directory = logs / operator.name
    directory.mkdir(parents=True, exist_ok=True)
    bundle = renewed(Bundle("", "", "", ""), ["127.0.0.1"], Lifetimes(), time.time())
    for name, text in bundle.data().items():
        (directory / name).write_text(text, encoding="utf-8")
    (directory / "port").write_text(str(port), encoding="utf-8")
    health_port = free_port()
    configuration = {
        "apiVersion": operator.configuration,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(directory)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
    }
    file = directory / "configuration.yaml"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    command = Command(
        operator.name,
        [str(binary), f"--config={file}"],
        logs / f"{operator.name}.log",
        {"KUBECONFIG": str(plane.admin_kubeconfig)},
    )
    return Component(plane, command, health_port, tethered=True)


def _apply_webhooks(plane: ControlPlane, operator: Operator, directory: Path) -> str:
    """Apply its webhook configurations, for this process; return them as text."""
    port = (directory / "port").read_text(encoding="utf-8")
    authority = base64.b64encode((directory / "ca.crt").read_bytes()).decode()
    text = (operator.webhooks.fetch(print) / "manifests.yaml").read_text(encoding="utf-8")
    documents = [
        _adapted(document, operator, f"https://127.0.0.1:{port}", authority)
        for document in yaml.safe_load_all(text)
        if document
    ]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    plane.kubectl("apply", "--server-side", "--filename=-", stdin=body)
    return body


def _adapted(
    document: dict[str, Any], operator: Operator, url: str, authority: str
) -> Mapping[str, Any]:
    for webhook in document["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"{url}{path}", "caBundle": authority}
        if path.endswith("--v1-pod"):
            exists = {"key": operator.pod_label, "operator": "Exists"}
            webhook["objectSelector"] = {"matchExpressions": [exists]}
    name = f"{operator.name}-{document['metadata']['name']}"
    return {**document, "metadata": {"name": name}}
