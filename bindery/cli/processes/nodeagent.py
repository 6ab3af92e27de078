"""`bindery nodeagent`: runs hollow nodes, or the agent beside a kubelet, until stopped.

`beside` has the command for real nodes. Called by the `bindery` command;
`bindery.nodeagent` takes over. Wrong input ends with exit code 2 before anything is written to the
cluster.
"""

import asyncio
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import ValidationError

from bindery import __version__
from bindery.api import yamlfile
from bindery.cli.options import LogLevel, command_group, examples
from bindery.cli.processes import beside, running
from bindery.kube.client import Client
from bindery.nodeagent.agent import COMPONENT, HollowAgent
from bindery.nodeagent.shapes import HollowNode, HollowNodesFile, NodeShape, expand
from bindery.nodeagent.topologies import DELAY_S
from bindery.observability.listening import LOOPBACK, Listening

app = command_group("Runs bound pods, or works beside a kubelet.")
app.command(epilog=beside.EXAMPLES)(beside.beside)


@app.command(
    epilog=examples(
        ("nodeagent run --hollow 20", "20 servers with eight GPUs"),
        ("nodeagent run --hollow 4 --set numa.sockets=2", "with two NUMA zones each"),
        ("nodeagent run --hollow 4 --set kubelet.systemReserved.cpu=2", "2 CPUs less for pods"),
        ("nodeagent run --shapes nodes.yaml --remove-on-exit", "the shapes of a file"),
    )
)
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
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of a shape; may be repeated."),
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the kubelets' checkpoints there.")
    ] = None,
    topology_delay: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How late NodeResourceTopologies are.")
    ] = DELAY_S,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    remove_on_exit: Annotated[
        bool, typer.Option("--remove-on-exit", help="Delete the nodes at a clean stop.")
    ] = False,
    log_level: LogLevel = "info",
) -> None:
    """Run hollow nodes: Node objects, Leases and pod statuses without machines behind them."""
    if (hollow is None) == (shapes is None):
        raise typer.BadParameter(
            "only hollow nodes are supported: use --hollow N or --shapes FILE"
            if hollow is None
            else "--hollow and --shapes exclude each other: a shapes file has its own counts",
            param_hint="--hollow",
        )
    if shapes is not None and settings:
        raise typer.BadParameter("a shapes file has its own keys", param_hint="--set")
    if shapes is not None:
        nodes = expand(yamlfile.load(HollowNodesFile, shapes).shapes)
    else:
        nodes = _from_options(
            {
                "count": hollow, "name_prefix": name_prefix, "cpu": cpu, "memory": memory,
                "gpus": gpus, "gpu_model": gpu_model, "racks": racks, "zones": zones,
                "pods": pods, "node_pool": node_pool,
            },
            settings or (),
        )  # fmt: skip
    running.prepare(COMPONENT, log_level)
    listening = Listening(health_port, metrics_port, listen_address)
    places = Places(checkpoints, topology_delay)
    running.run(_run(nodes, kubeconfig, listening, remove_on_exit, places))


@dataclass(frozen=True)
class Places:
    """Where and when the agent writes the resources held on its nodes."""

    checkpoints: Path | None
    topology_delay_s: float


def _from_options(options: dict[str, object], settings: Sequence[str]) -> tuple[HollowNode, ...]:
    shape = dict(options)
    for setting in settings:
        _enter(shape, setting)
    try:
        return expand((NodeShape.model_validate(shape),))
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(
            yamlfile.describe(first), param_hint=_option(first["loc"], options)
        ) from error


def _enter(shape: dict[str, object], setting: str) -> None:
    """Enter `key.key=value` into the keys of a shape; the value is YAML."""
    path, is_set, text = setting.partition("=")
    keys = path.split(".")
    if not is_set or not all(keys):
        raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
    # A resource's name contains dots itself; it is the last key, after the key of the resources.
    for at, key in enumerate(keys[:-1]):
        if key in _OF_RESOURCES:
            keys[at + 1 :] = [".".join(keys[at + 1 :])]
            break
    place = shape
    for key in keys[:-1]:
        inner = place.setdefault(key, {})
        if not isinstance(inner, dict):
            raise typer.BadParameter(f"{setting!r}: {key} has no keys", param_hint="--set")
        place = inner
    try:
        place[keys[-1]] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"{setting!r}: the value is not YAML"
        raise typer.BadParameter(message, param_hint="--set") from error


_OF_RESOURCES = ("resources", "labels", "systemReserved", "kubeReserved", "devices", "evictionHard")


def _option(location: tuple[int | str, ...], options: Collection[str]) -> str:
    """Return the option that sets the key at `location`."""
    key = str(location[0]) if location else "zones"
    if not location or key in options:
        return "--hollow" if key == "count" else "--" + key.replace("_", "-")
    return f"--set {yamlfile.format_location(location)}"


async def _run(
    nodes: tuple[HollowNode, ...],
    kubeconfig: Path | None,
    listening: Listening,
    remove_on_exit: bool,
    places: Places,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Client.connect(kubeconfig, user_agent=f"{COMPONENT}/{__version__}") as client:
        agent = HollowAgent(
            client, nodes, checkpoints=places.checkpoints, topology_delay_s=places.topology_delay_s
        )
        await agent.run(stop, listening=listening, remove_on_exit=remove_on_exit)
