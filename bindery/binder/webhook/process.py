"""The webhook process: runs the server, the certificates and the probes until a signal.

Called by the command line. All replicas are equal; there is no leader.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery import __version__
from bindery.api.configuration import WebhookConfiguration
from bindery.binder.plugins.interface import BinderPlugin
from bindery.binder.stopping import Stop
from bindery.binder.webhook.access import Access, PodAccess
from bindery.binder.webhook.certificates import Lifetimes
from bindery.binder.webhook.directory import Directory
from bindery.binder.webhook.queues import QueueReview
from bindery.binder.webhook.review import Plugins
from bindery.binder.webhook.rotation import CertificatePlace, Rotation
from bindery.binder.webhook.server import Decide, WebhookServer
from bindery.binder.webhook.watching import WatchedDirectory
from bindery.kube.client import Client
from bindery.observability.health import HealthServer
from bindery.observability.listening import Listening

COMPONENT: Final = "bindery-webhook"


@dataclass(frozen=True)
class WebhookOptions:
    """The command line options."""

    configuration: WebhookConfiguration
    plugins: tuple[BinderPlugin, ...]
    kubeconfig: Path | None
    listening: Listening


async def run(options: WebhookOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        KubeError: no usable configuration for the API server was found.
        ListenError: a port cannot be listened on.
    """
    stop = Stop()
    stop.claim_signals()
    given = options.configuration
    host = given.host or options.listening.address
    place = CertificatePlace(given.namespace, given.secret, given.configuration, given.dns_names)
    lifetimes = Lifetimes(given.authority_seconds, given.certificate_seconds, given.overlap_seconds)
    async with AsyncExitStack() as stack:
        agent = f"{COMPONENT}/{__version__}"
        client = await stack.enter_async_context(
            Client.connect(options.kubeconfig, user_agent=agent)
        )
        directory = WatchedDirectory(client)
        server = WebhookServer(reviews(options.plugins, given, directory), given.port, host)
        await stack.enter_async_context(server)
        checks = {
            "certificate": lambda: server.is_trusted,
            "watches synced": directory.is_synced,
            "watches up to date": directory.is_healthy,
        }
        await stack.enter_async_context(HealthServer(options.listening, checks))
        rotation = Rotation(client, place, lifetimes, server.use)
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(each) for each in (rotation.run(), directory.run())]
            await stop.wait()
            for task in work:
                task.cancel()


def reviews(
    plugins: Sequence[BinderPlugin], given: WebhookConfiguration, directory: Directory
) -> dict[str, Decide]:
    """Return the functions that answer reviews, by path."""
    pods = Plugins([*plugins, PodAccess(directory)], given.scheduler_name)
    access = Access(directory, given.scheduler_name)
    return {
        "/validate": pods.validate,
        "/mutate": pods.mutate,
        "/adopt": access.adopt,
        "/workloads": access.validate_workload,
        "/podgroups": access.validate_group,
        "/queues": QueueReview(directory).validate,
    }
