"""Serves the pages on this machine, for `bindery dashboard open`."""

import logging
from collections.abc import Callable

import typer

import bindery
from bindery.cli.choice import ClusterChoice
from bindery.cli.options import Origin
from bindery.cli.processes import running
from bindery.cli.reading.scenariosource import read_with_history
from bindery.dashboard import process
from bindery.dashboard.history import LiveHistory, RecordedHistory, decoded
from bindery.dashboard.live import LiveCluster
from bindery.kube.client import Client
from bindery.observability import logs


def serve_file(origin: Origin, port: int, announce: Callable[[str], None]) -> None:
    """Serve the cluster of the file in `origin`. `announce` gets the address.

    Raises:
        FileError: the file cannot be used.
        CommandError: the port cannot be listened on.
    """
    assert origin.file is not None, "the caller has asked for a file"
    source, text = read_with_history(origin.file, origin)
    logs.configure(process.COMPONENT, logging.getLevelName(logging.WARNING).lower())
    history = RecordedHistory(decoded({source.configuration.node_pool: text}))
    running.run(running.until_stopped(process.open_fixed(source, history, port, announce)))


def serve_cluster(
    context: typer.Context, node_pool: str, port: int, announce: Callable[[str], None]
) -> None:
    """Serve the cluster that the global options select. `announce` gets the address.

    Raises:
        KubeError: the cluster cannot be read.
        NoAnswerError: the account may not read the whole cluster.
        CommandError: the port cannot be listened on.
    """
    choice = context.find_object(ClusterChoice) or ClusterChoice()
    logs.configure(process.COMPONENT, logging.getLevelName(logging.WARNING).lower())

    async def serve() -> None:
        connecting = Client.connect(
            choice.kubeconfig,
            context=choice.context,
            user_agent=f"bindery-cli/{bindery.__version__}",
        )
        async with connecting as client:
            cluster = LiveCluster(client, choice.lease_namespace, node_pool)
            history = LiveHistory(client, choice.lease_namespace, cluster.pools)
            await process.open_live(cluster, history, port, announce)

    running.run(running.until_stopped(serve()))
