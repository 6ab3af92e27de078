"""`bindery dashboard`: the pages in a browser, served in a cluster or from a laptop.

`bindery.dashboard.process` takes over; the answers are those of the other commands.
"""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from bindery.cli.importing import importing
from bindery.cli.options import ConfigOption, FileOption, LogLevel, Origin, PoolOption, examples
from bindery.cli.processes import running
from bindery.observability.listening import LOOPBACK, Listening

app = typer.Typer(help="Shows the cluster as pages in a browser.", no_args_is_help=True)

_PORT = 8080


@app.command(
    epilog=examples(
        ("dashboard run --listen-address 0.0.0.0", "as the chart does, behind HTTPS"),
        ("dashboard run --kubeconfig ~/.kube/config", "on this machine, with the login"),
    )
)
def run(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the pages.")] = _PORT,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate", metavar="FILE", help="Serve HTTPS with this certificate."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")
    ] = None,
    lease_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace of the components' Leases.")
    ] = "kube-system",
    node_pool: PoolOption = None,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    log_level: LogLevel = "info",
) -> None:
    """Serve the pages to people who log in with a token of the API server, until stopped.

    Each person sees what the API server lets the person list.

    On an address other than loopback, browsers must reach the pages by HTTPS: the cookie of a
    session is not sent otherwise.
    """
    with importing():
        from bindery.dashboard import process
    running.prepare(process.COMPONENT, log_level)
    options = process.DashboardOptions(
        served=process.Served(listen_address, port, certificate, key),
        listening=Listening(health_port, metrics_port, listen_address),
        kubeconfig=kubeconfig,
        lease_namespace=lease_namespace,
        node_pool=node_pool or "",
    )
    running.run(running.until_stopped(process.run(options)))


@app.command(
    "open",
    epilog=examples(
        ("dashboard open", "the cluster of the kubeconfig; nothing is installed"),
        ("dashboard open --file cluster.yaml", "a snapshot or a scenario"),
        ("dashboard open --no-browser --port 0", "only print the address"),
    ),
)
def open_page(
    context: typer.Context,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Default: a free port.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the address in a browser.")] = True,
) -> None:
    """Show the cluster, or a file, in the browser of this machine, until stopped.

    The address has a one-time token: the first browser that opens it may read, and no other user of
    this machine.

    For a cluster, --kubeconfig and --context stand before the command, as for the other commands.
    """
    with importing():
        from bindery.cli.processes.localpage import serve_cluster, serve_file

    def announce(address: str) -> None:
        typer.echo(address)
        if browser:
            webbrowser.open(address)

    if file is not None:
        serve_file(Origin(file, config, node_pool), port, announce)
    else:
        serve_cluster(context, node_pool or "", port, announce)
