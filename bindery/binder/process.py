"""The binder process: waits for the Lease or leads, answers probes, and stops gracefully.

Called by the command line; `term` does the work while this process holds the Lease. On standby, the
process already fills its mirrors of pods and nodes. At SIGTERM it starts no new work, finishes the
bindings in progress, and releases the Lease; the next binder does the rest, as after a crash. The
Lease is left to expire while a write that was cut off may still take effect: the next binder could
roll back before the write arrives.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bindery import __version__
from bindery.api.configuration import BinderConfiguration
from bindery.binder.api_server.pods import ClusterView
from bindery.binder.metrics import LEADING
from bindery.binder.operator import Operator
from bindery.binder.plugins.interface import BinderPlugin
from bindery.binder.requestevents import MakeSource, RequestSource
from bindery.binder.statements.intake import Intake
from bindery.binder.stopping import Stop
from bindery.binder.term import Term, TermResources
from bindery.kube import publication
from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.http.carrier import LeftWrites
from bindery.kube.lease import LeaderElector, Leadership
from bindery.observability.health import HealthServer
from bindery.observability.listening import Listening

COMPONENT: Final = "bindery-binder"
_WRITES_END_WITHIN_S: Final = 5.0
"""Seconds at a stop for writes that were cut off; with those for work in progress and for the Lease
well below a pod's 30 s to terminate."""
_OTHER_CONNECTIONS: Final = 32
"""Connections beside those of bindings: status writes, reads, events, the Lease."""


@dataclass(frozen=True)
class Options:
    """The command line options."""

    configuration: BinderConfiguration
    plugins: tuple[BinderPlugin, ...]
    kubeconfig: Path | None
    identity: str
    """The identity in the Lease, unique to this process."""
    listening: Listening


async def run(options: Options) -> None:
    """Run a binder until SIGTERM or SIGINT.

    Raises:
        KubeError: no usable configuration for the API server was found.
    """
    credentials, stop = await Credentials.load(options.kubeconfig), Stop()

    def operator(intake: Intake) -> RequestSource:
        return Operator(intake, credentials, options.identity, stop.claim_signals)

    connecting = Client.connect(
        options.kubeconfig,
        user_agent=f"{COMPONENT}/{__version__}",
        connections=options.configuration.concurrent_binds + _OTHER_CONNECTIONS,
    )
    async with connecting as client:
        stop.claim_signals()
        await Binder(options, client, stop, operator).run()


class Binder:
    """One binder process. It learns of BindRequests from what `make_source` makes."""

    def __init__(
        self, options: Options, client: Client, stop: Stop, make_source: MakeSource
    ) -> None:
        self._options = options
        self._resources = TermResources(
            client=client,
            configuration=options.configuration,
            plugins=options.plugins,
            view=ClusterView(client),
            events=EventRecorder(client, COMPONENT),
            stop=stop,
            make_source=make_source,
            writes=LeftWrites(),
        )
        self._leading = False
        self._source: RequestSource | None = None

    async def run(self) -> None:
        """Take part in the leader election, and bind while leading, until it is to stop."""
        resources = self._resources
        async with AsyncExitStack() as stack:
            server = HealthServer(self._options.listening, self._checks())
            await stack.enter_async_context(server)
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(resources.view.pods.run()),
                    group.create_task(resources.view.nodes.run()),
                    group.create_task(resources.events.run()),
                ]
                election = group.create_task(self._elector().run(self._lead))
                stopping = group.create_task(resources.stop.wait())
                await asyncio.wait({election, stopping}, return_when=asyncio.FIRST_COMPLETED)
                # A running term reads the stop by itself and ends.
                if not self._leading:
                    election.cancel()
                await asyncio.wait({election})
                for task in (*background, stopping):
                    task.cancel()

    def _elector(self) -> LeaderElector:
        configuration = self._options.configuration
        published = publication.annotations(configuration)
        return LeaderElector(
            self._resources.client,
            name=COMPONENT,
            identity=self._options.identity,
            configuration=configuration.leader_election,
            annotations=lambda: published,
        )

    async def _lead(self, leadership: Leadership) -> None:
        writes = LeftWrites()
        # The term is asked last, in the step that sends: a process can be frozen before it.
        client = self._resources.client.within(leadership.is_valid).finishing(writes)
        term = Term(replace(self._resources, client=client, writes=writes))
        self._leading, self._source = True, term.source
        LEADING.set(1)
        try:
            await term.run()
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITES_END_WITHIN_S):
                    await writes.ended()
            leadership.is_to_expire = writes.are_open
        finally:
            writes.abandon()
            LEADING.set(0)
            self._leading, self._source = False, None

    def _checks(self) -> dict[str, Callable[[], bool]]:
        return {
            "mirrors": self._resources.view.is_healthy,
            "operator": lambda: self._source is None or self._source.is_alive,
        }
