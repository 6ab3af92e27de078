"""`bindery nodeagent run --container-runtime-endpoint`: runs the pods of this machine.

`nodeagent` has the command; `bindery.nodeagent.containers.agent` takes over.
"""

import ipaddress
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bindery import __version__
from bindery.api import quantity
from bindery.api.quantity import QuantityError
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.processes import running
from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.realenvironment import REAL
from bindery.nodeagent.hardware import KubeletSettings
from bindery.observability.listening import Listening

if TYPE_CHECKING:
    from bindery.nodeagent.identity.cloud import CloudRequestManager
    from bindery.nodeagent.identity.process import NodeIdentity
    from bindery.nodeagent.shapes import ManagedNode

_USER_AGENT: Final = f"bindery-nodeagent/{__version__}"

Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="unix://SOCKET", help="Run this machine's pods with the runtime that serves there."
    ),
]
NodeName = Annotated[
    str, typer.Option(metavar="NAME", envvar="NODE_NAME", help="Default: the host's name.")
]
NodeIp = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Default: the address of the default route.")
]
NodeLabels = Annotated[
    list[str] | None,
    typer.Option("--node-label", metavar="KEY=VALUE", help="A label of the node."),
]
RootDir = Annotated[Path, typer.Option(metavar="DIR", help="For volumes.")]
KubeletDir = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Where plugins look for a kubelet; also for checkpoints."),
]
PodLogsDir = Annotated[Path, typer.Option(metavar="DIR", help="For the logs of containers.")]
LogSize = Annotated[
    str, typer.Option(metavar="QUANTITY", help="A container's log of this size is renamed.")
]
LogFiles = Annotated[
    int, typer.Option(min=2, metavar="COUNT", help="Logs of a container at most, renamed ones too.")
]
CgroupRoot = Annotated[str, typer.Option(metavar="PATH", help="Where kubepods is made.")]
ClusterDns = Annotated[
    list[str] | None, typer.Option(metavar="ADDRESS", help="Name server of pods.")
]
ClusterDomain = Annotated[str, typer.Option(metavar="DOMAIN", help="Domain of Services.")]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=65535, metavar="PORT",
        help="For kubectl logs, exec and port-forward; 0: nowhere.",
    ),
]  # fmt: skip
ClientCaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Who signs the API server's certificate as a caller."),
]
ResolvConf = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The node's own name servers.")
]
BootstrapKubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Credentials with which the node requests its certificates."),
]
CertDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="For certificates; default: ROOT-DIR/pki.")
]
CloudNodeFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="JSON with the node's type, zone, region and addresses."),
]
CloudNodeUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Serves such JSON, as of a cloud provider.")
]


@dataclass(frozen=True)
class MachineOptions:
    """The options that are for this machine only."""

    endpoint: str
    name: str
    address: str
    labels: list[str]
    root: Path
    plugins: Path
    logs: Path
    cgroup_root: str
    dns: list[str]
    domain: str
    resolver: Path | None
    settings: KubeletSettings
    port: int
    client_ca: Path | None
    bootstrap: Path | None
    certificates: Path | None
    cloud_file: Path | None
    cloud_url: str | None
    log_size_bytes: int
    log_files: int


def run(options: MachineOptions, kubeconfig: Path | None, listening: Listening) -> None:
    """Run pods until stopped."""
    from bindery.nodeagent.identity import restriction

    taken = restriction.forbidden(_labels(options.labels))
    if options.bootstrap is not None and taken:
        raise typer.BadParameter(
            f"a node may not give itself {', '.join(taken)}: let an administrator do it",
            param_hint="--node-label",
        )
    if options.cloud_file is not None and options.cloud_url is not None:
        raise typer.BadParameter(
            "--cloud-node-file and --cloud-node-url exclude each other",
            param_hint="--cloud-node-url",
        )
    if os.geteuid() != 0:
        raise CommandError(
            "running pods needs root: mounts, cgroups and the runtime's socket", ExitCode.BAD_INPUT
        )
    running.run(_run(options, kubeconfig, listening))


async def _run(options: MachineOptions, kubeconfig: Path | None, listening: Listening) -> None:
    from bindery.nodeagent.containers import agent, cgroups, thismachine
    from bindery.nodeagent.containers.errors import EndpointError
    from bindery.nodeagent.containers.hostfiles import ClusterNames
    from bindery.nodeagent.containers.logfiles import LogLimits
    from bindery.nodeagent.containers.runtime import Runtime
    from bindery.nodeagent.containers.serving.tls import ServingError
    from bindery.nodeagent.containers.thismachine import MachineError, NodeOptions
    from bindery.nodeagent.identity.errors import IdentityError

    node_options = NodeOptions(
        options.name or socket.gethostname().lower(),
        _address(options.address),
        options.root,
        options.cgroup_root,
        options.port or None,
        _labels(options.labels),
        options.settings,
    )
    names = ClusterNames(tuple(options.dns), options.domain)
    settings = agent.AgentOptions(
        options.endpoint, node_options, options.plugins, options.logs, names, options.resolver,
        options.client_ca, LogLimits(options.log_size_bytes, options.log_files),
    )  # fmt: skip
    stop = running.stop_event()
    try:
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(Runtime(options.endpoint))
            version = await agent.connected(runtime, options.endpoint)
            _, _, found = cgroups.of_machine()
            name = version.runtime_name
            node = thismachine.node_of(
                node_options, f"{name}://{version.runtime_version.removeprefix('v')}", found
            )
            cloud = _cloud(options)
            identity = _identity(options, kubeconfig, node, cloud)
            if not await running.unless_stopped(_ready(identity, cloud), stop):
                return
            credentials = await Credentials.load(identity.kubeconfig if identity else kubeconfig)
            client = await stack.enter_async_context(
                Client.connect(credentials=credentials, user_agent=_USER_AGENT)
            )
            if identity is not None:
                identity.use(client, credentials)
            described = node if cloud is None else cloud.described(node)
            made = agent.ContainerAgent(client, runtime, settings, described, name)
            made.keep(identity, cloud)
            await made.run(stop, listening=listening)
        if identity is not None and identity.problem:
            raise CommandError(identity.problem, ExitCode.NO_CLUSTER)
    except (EndpointError, IdentityError, MachineError, ServingError) as error:
        raise CommandError(str(error), ExitCode.BAD_INPUT) from error


def _identity(
    options: MachineOptions,
    kubeconfig: Path | None,
    node: "ManagedNode",
    cloud: "CloudRequestManager | None",
) -> "NodeIdentity | None":
    """Return the certificates of the node, None if the kubeconfig has its credentials."""
    from bindery.nodeagent import node_objects
    from bindery.nodeagent.identity.process import (
        IdentityOptions,
        IdentitySurroundings,
        NodeIdentity,
    )

    if options.bootstrap is None:
        return None
    directory = options.certificates or options.root / "pki"
    return NodeIdentity(
        IdentityOptions(
            node.name,
            options.bootstrap,
            directory,
            kubeconfig or directory / "kubeconfig",
            _USER_AGENT,
        ),
        IdentitySurroundings(
            REAL,
            lambda: node_objects.addresses(node if cloud is None else cloud.described(node)),
        ),
    )


def _cloud(options: MachineOptions) -> "CloudRequestManager | None":
    from bindery.nodeagent.identity.cloud import CloudRequestManager, FileProvider, UrlProvider

    if options.cloud_file is not None:
        return CloudRequestManager(FileProvider(options.cloud_file))
    if options.cloud_url is not None:
        return CloudRequestManager(UrlProvider(options.cloud_url))
    return None


async def _ready(identity: "NodeIdentity | None", cloud: "CloudRequestManager | None") -> None:
    """Wait for the cloud provider's first answer and for the first certificate."""
    if cloud is not None:
        await cloud.wait()
    if identity is not None:
        await identity.join()


def log_size_bytes(text: str) -> int:
    """Return the size that an option names."""
    try:
        size = quantity.parse(text, "memory")
    except QuantityError as error:
        raise typer.BadParameter(str(error), param_hint="--container-log-max-size") from error
    if size <= 0:
        raise typer.BadParameter("a size above 0", param_hint="--container-log-max-size")
    return size


def _address(wanted: str) -> str:
    """Return the address of the node: the given one, or the one towards the default route."""
    if wanted:
        try:
            return str(ipaddress.ip_address(wanted))
        except ValueError as error:
            raise typer.BadParameter(
                f"{wanted!r} is not an address", param_hint="--node-ip"
            ) from error
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel only chooses a route.
            probe.connect(("192.0.2.1", 9))
        except OSError as error:
            raise typer.BadParameter(
                "this machine has no default route: name the node's address",
                param_hint="--node-ip",
            ) from error
        return str(probe.getsockname()[0])


def _labels(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, is_set, value = text.partition("=")
        if not is_set or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--node-label")
        found[key] = value
    return found
