"""`bindery nodeagent`: runs hollow nodes, this machine's pods, or the agent beside a kubelet.

`containers` and `beside` have what is for real nodes. Called by the `bindery` command;
`bindery.nodeagent` takes over. Wrong input ends with exit code 2 before anything is written to the
cluster.
"""

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
from bindery.cli.processes import beside, containers, running
from bindery.kube.client import Client
from bindery.nodeagent.agent import COMPONENT, HollowAgent
from bindery.nodeagent.hardware import KubeletSettings
from bindery.nodeagent.shapes import HollowNodesFile, ManagedNode, NodeShape, expand
from bindery.nodeagent.topologies import DELAY_S
from bindery.observability.listening import LOOPBACK, Listening

app = command_group("Runs bound pods, or works beside a kubelet.")
app.command(epilog=beside.EXAMPLES)(beside.beside)


Hollow = Annotated[int | None, typer.Option(min=1, metavar="N", help="Run N equal hollow nodes.")]
Shapes = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run the hollow nodes of a YAML file.")
]
NamePrefix = Annotated[str, typer.Option(help="Prefix of the names of hollow nodes.")]
Cpu = Annotated[str, typer.Option(help="Cores of each hollow node.")]
Memory = Annotated[str, typer.Option(help="Memory of each hollow node.")]
Gpus = Annotated[int, typer.Option(min=0, help="GPUs of each hollow node.")]
Racks = Annotated[int, typer.Option(min=0, help="Racks in all; 0: no label.")]
Zones = Annotated[int, typer.Option(min=0, help="Zones in all; 0: no label.")]
Pods = Annotated[int, typer.Option(min=0, help="Pods that fit each hollow node.")]
NodePool = Annotated[str, typer.Option(help="The hollow nodes' pool; none by default.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of a shape, or kubelet.KEY; may be repeated."
    ),
]
Checkpoints = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write hollow kubelets' checkpoints there.")
]
TopologyDelay = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How late NodeResourceTopologies are.")
]
RemoveOnExit = Annotated[
    bool, typer.Option("--remove-on-exit", help="Delete the hollow nodes at a clean stop.")
]


@app.command(
    epilog=examples(
        ("nodeagent run --hollow 20", "20 servers with eight GPUs"),
        ("nodeagent run --hollow 4 --set numa.sockets=2", "with two NUMA zones each"),
        ("nodeagent run --hollow 4 --set kubelet.systemReserved.cpu=2", "2 CPUs less for pods"),
        ("nodeagent run --shapes nodes.yaml --remove-on-exit", "the shapes of a file"),
        (
            "nodeagent run --node-name edge-1 --container-runtime-endpoint unix:///run/cri.sock",
            "the pods of this machine, in place of a kubelet",
        ),
    )
)
def run(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    hollow: Hollow = None,
    shapes: Shapes = None,
    container_runtime_endpoint: containers.Endpoint = None,
    node_name: containers.NodeName = "",
    node_ip: containers.NodeIp = "",
    node_label: containers.NodeLabels = None,
    root_dir: containers.RootDir = Path("/var/lib/bindery-nodeagent"),
    kubelet_dir: containers.KubeletDir = Path("/var/lib/kubelet"),
    pod_logs_dir: containers.PodLogsDir = Path("/var/log/pods"),
    cgroup_root: containers.CgroupRoot = "/",
    cluster_dns: containers.ClusterDns = None,
    cluster_domain: containers.ClusterDomain = "cluster.local",
    resolv_conf: containers.ResolvConf = Path("/etc/resolv.conf"),
    port: containers.Port = 10250,
    client_ca_file: containers.ClientCaFile = None,
    bootstrap_kubeconfig: containers.BootstrapKubeconfig = None,
    cert_dir: containers.CertDir = None,
    cloud_node_file: containers.CloudNodeFile = None,
    cloud_node_url: containers.CloudNodeUrl = None,
    container_log_max_size: containers.LogSize = "10Mi",
    container_log_max_files: containers.LogFiles = 5,
    name_prefix: NamePrefix = "hollow-",
    cpu: Cpu = "64",
    memory: Memory = "512Gi",
    gpus: Gpus = 8,
    gpu_model: Annotated[str, typer.Option()] = "NVIDIA-H100-80GB-HBM3",
    racks: Racks = 4,
    zones: Zones = 2,
    pods: Pods = 110,
    node_pool: NodePool = "",
    settings: Settings = None,
    checkpoints: Checkpoints = None,
    topology_delay: TopologyDelay = DELAY_S,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    remove_on_exit: RemoveOnExit = False,
    log_level: LogLevel = "info",
) -> None:
    """Run pods: on hollow nodes without machines, or on this machine with a container runtime."""
    _check_choice(hollow, shapes, container_runtime_endpoint, settings)
    listening = Listening(health_port, metrics_port, listen_address)
    if container_runtime_endpoint is not None:
        options = containers.MachineOptions(
            container_runtime_endpoint, node_name, node_ip, node_label or [], root_dir,
            kubelet_dir, pod_logs_dir, cgroup_root, cluster_dns or [], cluster_domain, resolv_conf,
            _kubelet_settings(settings or ()), port, client_ca_file, bootstrap_kubeconfig,
            cert_dir, cloud_node_file, cloud_node_url,
            containers.log_size_bytes(container_log_max_size), container_log_max_files,
        )  # fmt: skip
        running.prepare(COMPONENT, log_level)
        containers.run(options, kubeconfig, listening)
        return
    nodes = (
        expand(yamlfile.load(HollowNodesFile, shapes).shapes)
        if shapes is not None
        else _from_options(
            {
                "count": hollow, "name_prefix": name_prefix, "cpu": cpu, "memory": memory,
                "gpus": gpus, "gpu_model": gpu_model, "racks": racks, "zones": zones,
                "pods": pods, "node_pool": node_pool,
            },
            settings or (),
        )
    )  # fmt: skip
    running.prepare(COMPONENT, log_level)
    places = Places(checkpoints, topology_delay)
    running.run(_run(nodes, kubeconfig, listening, remove_on_exit, places))


def _check_choice(
    hollow: int | None, shapes: Path | None, endpoint: str | None, settings: list[str] | None
) -> None:
    """Raise BadParameter unless exactly one kind of nodes is wanted."""
    chosen = [one for one in (hollow, shapes, endpoint) if one is not None]
    if not chosen:
        raise typer.BadParameter(
            "choose --hollow N, --shapes FILE, or --container-runtime-endpoint for this machine",
            param_hint="--hollow",
        )
    if hollow is not None and shapes is not None:
        raise typer.BadParameter(
            "--hollow and --shapes exclude each other: a shapes file has its own counts",
            param_hint="--hollow",
        )
    if len(chosen) > 1:
        raise typer.BadParameter(
            "a process runs hollow nodes or this machine's pods, not both",
            param_hint="--container-runtime-endpoint",
        )
    if shapes is not None and settings:
        raise typer.BadParameter("a shapes file has its own keys", param_hint="--set")


def _kubelet_settings(texts: Sequence[str]) -> KubeletSettings:
    """Return the settings of `--set kubelet.KEY=VALUE`; no other keys are for a real machine."""
    tree: dict[str, object] = {}
    for text in texts:
        _enter(tree, text)
    unknown = sorted(tree.keys() - {"kubelet"})
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]}: a real machine has its own; only kubelet.KEY can be set",
            param_hint="--set",
        )
    try:
        return KubeletSettings.model_validate(tree.get("kubelet", {}))
    except ValidationError as error:
        raise typer.BadParameter(
            yamlfile.describe(error.errors()[0]), param_hint="--set"
        ) from error


@dataclass(frozen=True)
class Places:
    """Where and when the agent writes the resources held on its nodes."""

    checkpoints: Path | None
    topology_delay_s: float


def _from_options(options: dict[str, object], settings: Sequence[str]) -> tuple[ManagedNode, ...]:
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
    nodes: tuple[ManagedNode, ...],
    kubeconfig: Path | None,
    listening: Listening,
    remove_on_exit: bool,
    places: Places,
) -> None:
    stop = running.stop_event()
    async with Client.connect(kubeconfig, user_agent=f"{COMPONENT}/{__version__}") as client:
        agent = HollowAgent(
            client, nodes, checkpoints=places.checkpoints, topology_delay_s=places.topology_delay_s
        )
        await agent.run(stop, listening=listening, remove_on_exit=remove_on_exit)
