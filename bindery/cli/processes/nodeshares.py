"""`bindery nodeagent shares`: shares the GPUs of this node's kubelet, by HAMi's protocol.

A command of its own for a node without other parts of the agent. `bindery.nodeagent.shares.process`
does the work.
"""

from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from bindery import __version__
from bindery.cli.options import LogLevel
from bindery.cli.processes import running
from bindery.kube.client import Client
from bindery.observability.health import HealthServer
from bindery.observability.listening import LOOPBACK, Listening

if TYPE_CHECKING:
    from bindery.nodeagent.shares.process import SharesOptions


class DeviceListChoice(StrEnum):
    """How devices are passed to NVIDIA's runtime."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI = "cdi"


def share(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    node: Annotated[str, typer.Option(envvar="NODE_NAME", help="The name of this node.")],
    devices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The GPUs; default: NVML is asked.")
    ] = None,
    observe: Annotated[
        bool, typer.Option("--observe", help="Share nothing: only write which GPUs pods have got.")
    ] = False,
    split_count: Annotated[int, typer.Option(min=1, help="Containers that share a GPU.")] = 10,
    memory_scaling: Annotated[
        float, typer.Option(min=0.01, help="Above 1: more memory is promised than a GPU has.")
    ] = 1.0,
    device_list: Annotated[
        DeviceListChoice, typer.Option(help="How devices are passed to NVIDIA's runtime.")
    ] = DeviceListChoice.ENVVAR,
    hami_core: Annotated[
        str, typer.Option(metavar="DIR", help="Where HAMi-core's directory vgpu is.")
    ] = "/usr/local",
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="The node's root directory, as seen here.")
    ] = Path("/"),
    kubelet: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory with the kubelet's sockets.")
    ] = Path("/var/lib/kubelet"),
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Between two reads of the GPUs.")
    ] = 30.0,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    log_level: LogLevel = "info",
) -> None:
    """Share the GPUs of this node: a device plugin for its kubelet, by HAMi's protocol."""
    from bindery.nodeagent.devices.filesource import FileSource
    from bindery.nodeagent.devices.hamiregister import Sharing
    from bindery.nodeagent.devices.nvml import NvmlSource
    from bindery.nodeagent.shares.containers import DeviceList
    from bindery.nodeagent.shares.process import COMPONENT, SharesOptions

    options = SharesOptions(
        node=node,
        source=FileSource(devices) if devices is not None else NvmlSource(),
        sharing=Sharing(split_count, memory_scaling),
        device_list=DeviceList(device_list.value),
        hami_core=PurePosixPath(hami_core),
        root=root,
        device_plugins=kubelet / "device-plugins",
        pod_resources=kubelet / "pod-resources" / "kubelet.sock",
        every_s=interval,
    )
    running.prepare(COMPONENT, log_level)
    listening = Listening(health_port, metrics_port, listen_address)
    work = _run(options, kubeconfig, listening, observe=observe)
    running.run(running.until_stopped(work))


async def _run(
    options: "SharesOptions", kubeconfig: Path | None, listening: Listening, *, observe: bool
) -> None:
    from bindery.nodeagent.shares.process import COMPONENT, NodeGpuIndexes, NodeShares

    async with Client.connect(kubeconfig, user_agent=f"{COMPONENT}/{__version__}") as client:
        part = NodeGpuIndexes(options, client) if observe else NodeShares(options, client)
        async with HealthServer(listening, part.checks()):
            await part.run()
