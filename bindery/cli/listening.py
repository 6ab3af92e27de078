"""The options of every component that say where it answers probes and scrapes."""

from typing import Annotated

import typer

ListenAddress = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address of probes, metrics and the webhook. Default: this machine only.",
    ),
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Serve /healthz and /readyz, and /metrics unless it has a port; 0: a free port.",
    ),
]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Serve /metrics on another port.")
]
