"""The webhook's process: runs its server, certificates and probes until a signal.

Called by the command line. Every replica is like every other; there is no leader.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery import __version__
from bindery.api.configuration import WebhookConfiguration
from bindery.binder.plugins.interface import BinderPlugin
from bindery.binder.stopping import Stop
from bindery.binder.webhook.certificates import Lifetimes
from bindery.binder.webhook.review import Plugins
from bindery.binder.webhook.rotation import Place, Rotation
from bindery.binder.webhook.server import WebhookServer
from bindery.kube.client import Client
from bindery.observability.health import HealthServer
from bindery.observability.listening import Listening

COMPONENT: Final = "bindery-webhook"


@dataclass(frozen=True)
class Options:
    """The command line options."""

    configuration: WebhookConfiguration
    plugins: tuple[BinderPlugin, ...]
    kubeconfig: Path | None
    listening: Listening


async def run(options: Options) -> None:
    """Serve until a signal comes.

    Raises:
        KubeError: there is no usable configuration of the API server.
        ListenError: a port cannot be listened on.
    """
    stop = Stop()
    stop.claim_signals()
    given = options.configuration
    host = given.host or options.listening.address
    server = WebhookServer(Plugins(options.plugins, given.scheduler_name), given.port, host)
    place = Place(given.namespace, given.secret, given.configuration, given.dns_names)
    lifetimes = Lifetimes(given.authority_seconds, given.certificate_seconds, given.overlap_seconds)
    async with AsyncExitStack() as stack:
        agent = f"{COMPONENT}/{__version__}"
        client = await stack.enter_async_context(
            Client.connect(options.kubeconfig, user_agent=agent)
        )
        await stack.enter_async_context(server)
        checks = {"certificate": lambda: server.is_trusted}
        await stack.enter_async_context(HealthServer(options.listening, checks))
        rotation = Rotation(client, place, lifetimes, server.use)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(rotation.run())
            await stop.wait()
            work.cancel()
