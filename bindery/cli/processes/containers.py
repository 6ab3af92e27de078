"""`bindery nodeagent run --container-runtime-endpoint`: runs the pods of this machine.

`nodeagent` has the command; `bindery.nodeagent.containers.agent` takes over.
"""

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bindery import __version__
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.processes import running
from bindery.kube.client import Client
from bindery.nodeagent.hardware import KubeletSettings
from bindery.observability.listening import Listening

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


def run(options: MachineOptions, kubeconfig: Path | None, listening: Listening) -> None:
    """Run pods until stopped."""
    if os.geteuid() != 0:
        raise CommandError(
            "running pods needs root: mounts, cgroups and the runtime's socket", ExitCode.BAD_INPUT
        )
    running.run(_run(options, kubeconfig, listening))


async def _run(options: MachineOptions, kubeconfig: Path | None, listening: Listening) -> None:
    from bindery.nodeagent.containers import agent, cgroups, thismachine
    from bindery.nodeagent.containers.errors import EndpointError
    from bindery.nodeagent.containers.hostfiles import ClusterNames
    from bindery.nodeagent.containers.runtime import Runtime
    from bindery.nodeagent.containers.serving.tls import ServingError
    from bindery.nodeagent.containers.thismachine import MachineError, NodeOptions

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
        options.client_ca,
    )  # fmt: skip
    stop = running.stop_event()
    try:
        async with Runtime(options.endpoint) as runtime:
            version = await agent.connected(runtime, options.endpoint)
            _, _, found = cgroups.of_machine()
            name = version.runtime_name
            node = thismachine.node_of(
                node_options, f"{name}://{version.runtime_version.removeprefix('v')}", found
            )
            async with Client.connect(
                kubeconfig, user_agent=f"{agent.COMPONENT}/{__version__}"
            ) as client:
                made = agent.ContainerAgent(client, runtime, settings, node, name)
                await made.run(stop, listening=listening)
    except (EndpointError, MachineError, ServingError) as error:
        raise CommandError(str(error), ExitCode.BAD_INPUT) from error


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
