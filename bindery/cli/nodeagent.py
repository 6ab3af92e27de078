"""`bindery nodeagent run`: reads which nodes are wanted and runs the agent until it is stopped.

Called by the `bindery` command; `bindery.nodeagent.agent` takes over. Wrong input ends with exit
code 2 before anything is written to the cluster.
"""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from bindery import __version__
from bindery.api import yamlfile
from bindery.cli import running
from bindery.kube.client import Client
from bindery.nodeagent.agent import COMPONENT, HollowAgent
from bindery.nodeagent.shapes import HollowNode, HollowNodesFile, NodeShape, expand
from bindery.observability.listening import LOOPBACK, Listening

app = typer.Typer(help="Runs bound pods: the node agent.", no_args_is_help=True)


@app.callback()
def nodeagent() -> None:
    """Keep `run` a subcommand although it is the only one."""


@app.command()
def run(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    hollow: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run N equal hollow nodes.")
    ] = None,
    shapes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run the hollow nodes of a YAML file.")
    ] = None,
    name_prefix: Annotated[str, typer.Option(help="Prefix of the names.")] = "hollow-",
    cpu: Annotated[str, typer.Option(help="Cores of each node.")] = "64",
    memory: Annotated[str, typer.Option(help="Memory of each node.")] = "512Gi",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 8,
    gpu_model: Annotated[str, typer.Option()] = "NVIDIA-H100-80GB-HBM3",
    racks: Annotated[int, typer.Option(min=0, help="Racks in all; 0: no label.")] = 4,
    zones: Annotated[int, typer.Option(min=0, help="Zones in all; 0: no label.")] = 2,
    pods: Annotated[int, typer.Option(min=0, help="Pods that fit each node.")] = 110,
    node_pool: Annotated[str, typer.Option(help="The nodes' pool; none by default.")] = "",
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    remove_on_exit: Annotated[
        bool, typer.Option("--remove-on-exit", help="Delete the nodes at a clean stop.")
    ] = False,
    log_level: running.LogLevel = "info",
) -> None:
    """Run hollow nodes: Node objects, Leases and pod statuses without machines behind them."""
    if (hollow is None) == (shapes is None):
        raise typer.BadParameter(
            "only hollow nodes exist so far: say --hollow N, or --shapes FILE"
            if hollow is None
            else "--hollow and --shapes exclude each other: a shapes file has its own counts",
            param_hint="--hollow",
        )
    if shapes is not None:
        nodes = expand(yamlfile.load(HollowNodesFile, shapes).shapes)
    else:
        nodes = _from_options(
            {
                "count": hollow, "name_prefix": name_prefix, "cpu": cpu, "memory": memory,
                "gpus": gpus, "gpu_model": gpu_model, "racks": racks, "zones": zones,
                "pods": pods, "node_pool": node_pool,
            }
        )  # fmt: skip
    running.prepare("nodeagent", log_level)
    listening = Listening(health_port, metrics_port, listen_address)
    running.run(_run(nodes, kubeconfig, listening, remove_on_exit))


def _from_options(options: dict[str, object]) -> tuple[HollowNode, ...]:
    try:
        return expand((NodeShape.model_validate(options),))
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(first["msg"], param_hint=_option(first["loc"])) from error


def _option(location: tuple[int | str, ...]) -> str:
    """Return the option that sets the key at `location`."""
    key = str(location[0]) if location else "zones"
    return "--hollow" if key == "count" else "--" + key.replace("_", "-")


async def _run(
    nodes: tuple[HollowNode, ...],
    kubeconfig: Path | None,
    listening: Listening,
    remove_on_exit: bool,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Client.connect(kubeconfig, user_agent=f"{COMPONENT}/{__version__}") as client:
        agent = HollowAgent(client, nodes)
        await agent.run(stop, listening=listening, remove_on_exit=remove_on_exit)
