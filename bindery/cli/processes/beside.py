"""`bindery nodeagent beside`: runs the agent beside a kubelet until it is stopped.

`nodeagent` has the group of commands; `bindery.nodeagent.beside.agent` takes over.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from bindery import __version__
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import LogLevel, examples
from bindery.cli.processes import running
from bindery.kube.client import Client
from bindery.nodeagent.shares.devicelist import DeviceList
from bindery.observability.listening import LOOPBACK, Listening

if TYPE_CHECKING:
    from bindery.nodeagent.beside.gpuparts import GpuOptions

EXAMPLES = examples(
    ("nodeagent beside --node-name $NODE_NAME", "as the chart's DaemonSet does"),
    ("nodeagent beside --node-name n1 --kubelet-config /etc/kubelet.yaml", "another file"),
    ("nodeagent beside --node-name n1 --observe", "with the use of NVIDIA's GPUs"),
    ("nodeagent beside --node-name n1 --shares --devices gpus.yaml", "share the GPUs of a file"),
)


_HTTP = ("http://", "https://")


Observe = Annotated[
    bool, typer.Option("--observe", help="Write which GPUs pods have got, and their use.")
]
Shares = Annotated[bool, typer.Option("--shares", help="Also share the GPUs, by HAMi's protocol.")]
Claims = Annotated[
    bool, typer.Option("--claims", help="Also serve shares to resource claims (DRA).")
]
Devices = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The GPUs; default: NVML is asked.")
]
DevicesInterval = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Between two reads of the GPUs.")
]
DcgmUrl = Annotated[
    str | None,
    typer.Option(
        "--dcgm-exporter", metavar="URL", help="Read their use from DCGM's exporter of the node."
    ),
]
UseInterval = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Between two reads of their use.")
]
IdleThreshold = Annotated[
    int, typer.Option(min=1, max=100, metavar="PERCENT", help="Below this, a GPU is unused.")
]
IdleReportAfter = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Shortest time unused that is written.")
]
SplitCount = Annotated[int, typer.Option(min=1, help="Containers that share a GPU.")]
MemoryScaling = Annotated[
    float, typer.Option(min=0.01, help="Above 1: more memory is promised than a GPU has.")
]
DeviceListOption = Annotated[
    DeviceList, typer.Option(help="How devices are passed to NVIDIA's runtime.")
]
HamiCore = Annotated[str, typer.Option(metavar="DIR", help="Where HAMi-core's directory vgpu is.")]
CdiDir = Annotated[Path, typer.Option(metavar="DIR", help="For the CDI files of claims.")]
Root = Annotated[Path, typer.Option(metavar="DIR", help="The node's root directory, as seen here.")]


@dataclass(frozen=True)
class _Gpus:
    """The options about GPUs."""

    observe: bool
    shares: bool
    claims: bool
    devices: Path | None
    devices_interval: float
    dcgm_exporter: str | None
    use_interval: float
    idle_threshold: int
    idle_report_after: float
    split_count: int
    memory_scaling: float
    device_list: DeviceList
    hami_core: str
    cdi_dir: Path
    root: Path

    def options(self, kubelet: Path) -> "GpuOptions | None":
        from bindery.nodeagent.beside.gpuparts import GpuOptions
        from bindery.nodeagent.devices.dcgm import DcgmExporter
        from bindery.nodeagent.devices.filesource import FileSource
        from bindery.nodeagent.devices.hamiregister import Sharing
        from bindery.nodeagent.devices.nvml import NvmlSource
        from bindery.nodeagent.gpuuse.reporter import UseOptions
        from bindery.nodeagent.gpuuse.tracker import UseRules
        from bindery.nodeagent.shares.process import SharesOptions

        if not (self.observe or self.shares or self.claims):
            return None
        sharing = Sharing(self.split_count, self.memory_scaling)
        shares = SharesOptions(sharing, self.device_list)
        rules = UseRules(self.idle_threshold, self.idle_report_after)
        return GpuOptions(
            source=FileSource(self.devices) if self.devices is not None else NvmlSource(),
            kubelet=kubelet,
            shares=shares if self.shares else None,
            has_claims=self.claims,
            use=UseOptions(rules, self.use_interval),
            use_source=DcgmExporter(self.dcgm_exporter) if self.dcgm_exporter else None,
            cdi=self.cdi_dir,
            hami_core=PurePosixPath(self.hami_core),
            root=self.root,
            every_s=self.devices_interval,
        )


def beside(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    node_name: Annotated[
        str, typer.Option(metavar="NAME", envvar="NODE_NAME", help="The node of the kubelet.")
    ],
    kubelet_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The kubelet's root directory.")
    ] = Path("/var/lib/kubelet"),
    kubelet_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its configuration; default: config.yaml in the above."),
    ] = None,
    system_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The description of the hardware.")
    ] = Path("/sys/devices/system"),
    observe: Observe = False,
    shares: Shares = False,
    claims: Claims = False,
    devices: Devices = None,
    devices_interval: DevicesInterval = 30.0,
    dcgm_exporter: DcgmUrl = None,
    use_interval: UseInterval = 10.0,
    idle_threshold: IdleThreshold = 1,
    idle_report_after: IdleReportAfter = 30.0,
    split_count: SplitCount = 10,
    memory_scaling: MemoryScaling = 1.0,
    device_list: DeviceListOption = DeviceList.ENVVAR,
    hami_core: HamiCore = "/usr/local",
    cdi_dir: CdiDir = Path("/var/run/cdi"),
    root: Root = Path("/"),
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    log_level: LogLevel = "info",
) -> None:
    """Report what the pods of a kubelet hold of their node's NUMA zones, and serve its GPUs.

    Reads the kubelet's checkpoints, its configuration and its PodResources socket, and the
    hardware. Writes the node's NodeResourceTopology. On the node itself it writes nothing without
    --shares or --claims.
    """
    gpus = _Gpus(
        observe, shares, claims, devices, devices_interval, dcgm_exporter, use_interval,
        idle_threshold, idle_report_after, split_count, memory_scaling, device_list, hami_core,
        cdi_dir, root,
    )  # fmt: skip
    listening = Listening(health_port, metrics_port, listen_address)
    configuration = kubelet_config or kubelet_dir / "config.yaml"
    _run(_Kubelet(node_name, kubelet_dir, configuration, system_dir), gpus, kubeconfig, listening,
         log_level)  # fmt: skip


@dataclass(frozen=True)
class _Kubelet:
    node: str
    directory: Path
    configuration: Path
    system: Path


def _run(
    kubelet: _Kubelet, gpus: _Gpus, kubeconfig: Path | None, listening: Listening, log_level: str
) -> None:
    try:
        from bindery.nodeagent.beside.agent import COMPONENT, BesideAgent
        from bindery.nodeagent.beside.sources import NodeSources
    except ImportError as error:
        text = f"{error.name or error} is missing: install bindery[node]"
        raise CommandError(text, ExitCode.BAD_INPUT) from error
    sources = NodeSources(kubelet.directory, kubelet.configuration, kubelet.system)
    options = gpus.options(kubelet.directory)
    if gpus.shares and gpus.claims:
        raise typer.BadParameter(
            "both would give the same memory and cores", param_hint="--shares and --claims"
        )
    for option, value in (("--devices", gpus.devices), ("--dcgm-exporter", gpus.dcgm_exporter)):
        if value is not None and options is None:
            raise typer.BadParameter("it is for --observe, --shares or --claims", param_hint=option)
    if gpus.dcgm_exporter is not None and not gpus.dcgm_exporter.startswith(_HTTP):
        raise typer.BadParameter("it is no address of http", param_hint="--dcgm-exporter")

    async def work() -> None:
        async with Client.connect(kubeconfig, user_agent=f"{COMPONENT}/{__version__}") as client:
            agent = BesideAgent(client, kubelet.node, sources, options)
            await agent.run(listening=listening)

    running.prepare(COMPONENT, log_level)
    running.run(running.until_stopped(work()))
