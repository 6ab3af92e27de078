"""`bindery nodeagent beside`: runs the agent beside a kubelet until it is stopped.

`nodeagent` has the group of commands; `bindery.nodeagent.beside.agent` takes over.
"""

from pathlib import Path
from typing import Annotated

import typer

from bindery import __version__
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import LogLevel, examples
from bindery.cli.processes import running
from bindery.kube.client import Client
from bindery.observability.listening import LOOPBACK, Listening

EXAMPLES = examples(
    ("nodeagent beside --node-name $NODE_NAME", "as the chart's DaemonSet does"),
    ("nodeagent beside --node-name n1 --kubelet-config /etc/kubelet.yaml", "another file"),
    ("nodeagent beside --node-name n1 --kubelet-dir /host/kubelet", "mounted elsewhere"),
)


def beside(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    node_name: Annotated[
        str, typer.Option(metavar="NAME", envvar="NODE_NAME", help="The node of the kubelet.")
    ],
    kubelet_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The kubelet's root directory; read only.")
    ] = Path("/var/lib/kubelet"),
    kubelet_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its configuration; default: config.yaml in the above."),
    ] = None,
    system_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The description of the hardware.")
    ] = Path("/sys/devices/system"),
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    log_level: LogLevel = "info",
) -> None:
    """Report what the pods of a kubelet hold of their node's NUMA zones.

    Reads the kubelet's checkpoints, its configuration and its PodResources socket, and the
    hardware. Writes the node's NodeResourceTopology, and nothing on the node itself.
    """
    try:
        from bindery.nodeagent.beside.agent import COMPONENT, BesideAgent
        from bindery.nodeagent.beside.sources import NodeSources
    except ImportError as error:
        text = f"{error.name or error} is missing: install bindery[node]"
        raise CommandError(text, ExitCode.BAD_INPUT) from error
    sources = NodeSources(kubelet_dir, kubelet_config or kubelet_dir / "config.yaml", system_dir)

    async def work() -> None:
        async with Client.connect(kubeconfig, user_agent=f"{COMPONENT}/{__version__}") as client:
            agent = BesideAgent(client, node_name, sources)
            await agent.run(listening=Listening(health_port, metrics_port, listen_address))

    running.prepare(COMPONENT, log_level)
    running.run(running.until_stopped(work()))
