"""The dashboard process: in a cluster for many people, or on a laptop for one.

Called by the command line. In a cluster it watches with its own account, which may only read, and
each person logs in. On a laptop it listens on the loopback address, and the printed address has a
one-time token: other users of the machine reach the port too.
"""

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from bindery import __version__
from bindery.answers.source import Source
from bindery.dashboard.guard import Entrance
from bindery.dashboard.history import LiveHistory
from bindery.dashboard.live import FixedCluster, LiveCluster
from bindery.dashboard.past import HistoryReader
from bindery.dashboard.reviews import TokenReviewer
from bindery.dashboard.sessions import Sessions
from bindery.dashboard.state import ClusterReader, StateKeeper
from bindery.dashboard.web import Server, Site
from bindery.kube.access.credentials import ServerAddress
from bindery.kube.client import Client
from bindery.observability.health import HealthServer
from bindery.observability.interpreter import take_short_turns
from bindery.observability.listening import LOOPBACK, ListenError, Listening

_log = structlog.get_logger()

COMPONENT: Final = "bindery-dashboard"


@dataclass(frozen=True)
class Served:
    """Where people reach the page."""

    address: str
    port: int
    certificate: Path | None = None
    """PEM file for HTTPS; None: plain HTTP, for the loopback address or behind a proxy."""
    key: Path | None = None


@dataclass(frozen=True)
class DashboardOptions:
    """The start options of the process in a cluster."""

    served: Served
    listening: Listening
    kubeconfig: Path | None
    lease_namespace: str
    node_pool: str = ""
    """The pool of the scheduler for which the pages plan; empty: the default pool."""


async def run(options: DashboardOptions) -> None:
    """Serve people who log in, until cancelled.

    Raises:
        KubeError: there is no usable configuration of the API server.
        ListenError: the address cannot be listened on.
    """
    address = ServerAddress.load(options.kubeconfig)
    connecting = Client.connect(options.kubeconfig, user_agent=f"{COMPONENT}/{__version__}")
    async with connecting as client, AsyncExitStack() as stack:
        cluster = LiveCluster(client, options.lease_namespace, options.node_pool)
        checks = {"watches filled": cluster.is_filled, "watches up to date": cluster.is_up_to_date}
        await stack.enter_async_context(HealthServer(options.listening, checks))
        is_secure = options.served.address not in (LOOPBACK, "::1", "localhost")
        sessions = Sessions(TokenReviewer(address), time.monotonic)
        entrance = Entrance(is_local=False, is_secure=is_secure, port=options.served.port)
        history = LiveHistory(client, options.lease_namespace, cluster.pools)
        site = _site(cluster, sessions, entrance, history)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.run())
            group.create_task(history.run())
            await _serve(site, options.served, lambda port: _log.info("serving", port=port))


async def open_live(
    cluster: LiveCluster, history: LiveHistory, port: int, announce: Callable[[str], None]
) -> None:
    """Serve `cluster`, which this watches, on this machine. `announce`: the address.

    Raises:
        KubeError: the cluster cannot be read.
        NoAnswerError: the account may not read the whole cluster.
        ListenError: the port cannot be listened on.
    """
    await cluster.demand_rights()
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.run())
        group.create_task(history.run())
        await _open(cluster, history, port, announce)


async def open_fixed(
    source: Source, history: HistoryReader, port: int, announce: Callable[[str], None]
) -> None:
    """Serve the cluster of a file with its past on this machine, until cancelled.

    `announce`: the address.

    Raises:
        ListenError: the port cannot be listened on.
    """
    await _open(FixedCluster(source), history, port, announce)


async def _open(
    reader: ClusterReader, past: HistoryReader, port: int, announce: Callable[[str], None]
) -> None:
    sessions = Sessions(None, time.monotonic)
    entrance = Entrance(is_local=True, is_secure=False, port=port)
    site = _site(reader, sessions, entrance, past)
    site.ticket = secrets.token_urlsafe(24)

    def announced(bound: int) -> None:
        announce(f"http://{LOOPBACK}:{bound}/login#{site.ticket}")

    await _serve(site, Served(LOOPBACK, port), announced)


def _site(
    reader: ClusterReader, sessions: Sessions, entrance: Entrance, past: HistoryReader
) -> Site:
    return Site(StateKeeper(reader, time.monotonic), reader, sessions, past, entrance)


async def _serve(site: Site, where: Served, announced: Callable[[int], None]) -> None:
    take_short_turns()
    tls = None
    if where.certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(where.certificate, where.key)
    runner = web.AppRunner(Server(site).application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, where.address, where.port, ssl_context=tls).start()
        except OSError as error:
            raise ListenError(where.address, where.port, error) from error
        announced(runner.addresses[0][1])
        await site.keeper.run()
    finally:
        await runner.cleanup()
