"""One term of leadership: creates and runs all parts that act on BindRequests.

Created by `process` when the Lease is won. A term keeps no state of earlier terms: requests, pods
and nodes contain all the state.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import structlog

from bindery.api.configuration import BinderConfiguration
from bindery.binder.api_server.api_adapter import ApiAdapter
from bindery.binder.api_server.ending_namespaces import EndingNamespaces
from bindery.binder.api_server.pods import ClusterView
from bindery.binder.api_server.reports import Reports
from bindery.binder.api_server.waits import Waits
from bindery.binder.metrics import IN_FLIGHT, PLUGIN_SECONDS
from bindery.binder.outcome.fencing import Fence
from bindery.binder.outcome.limiter import FairLimiter
from bindery.binder.outcome.retention import RetentionQueue
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.plugins.interface import BinderPlugin, RunsBeside
from bindery.binder.requestevents import MakeSource
from bindery.binder.run.dependencies import RunDependencies
from bindery.binder.statements.intake import Intake
from bindery.binder.statements.manager import Manager
from bindery.binder.stopping import Stop
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.http.carrier import LeftWrites
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.resources import BIND_REQUESTS
from bindery.kube.objects.watched import KubeObject

_log: Final = structlog.get_logger(__name__)

_GRACE_S: Final = 5.0
"""Seconds at a stop for work in progress: well below a pod's 30 s to terminate."""
_LIST_RETRY_S: Final = 2.0
_PLUGIN_RESTART_S: Final = 2.0


class TokenCarrier(KubeObject, frozen=True, rename="camel", kw_only=True):
    """The fencing token of a BindRequest, even a malformed one."""

    spec: Any = None

    @property
    def token(self) -> int:
        """The fencing token; 0 if it cannot be read."""
        token = self.spec.get("fencingToken") if isinstance(self.spec, dict) else None
        return token if isinstance(token, int) else 0


_TOKEN_CARRIERS: Final = BIND_REQUESTS.decoded_as(TokenCarrier)


@dataclass(frozen=True)
class TermResources:
    """The resources of a term; they outlive it."""

    client: Client
    configuration: BinderConfiguration
    plugins: tuple[BinderPlugin, ...]
    view: ClusterView
    events: EventRecorder
    stop: Stop
    make_source: MakeSource
    writes: LeftWrites
    """Of `client`."""


class Term:
    """Connects the active parts of the binder."""

    def __init__(self, resources: TermResources) -> None:
        self._resources = resources
        configuration, environment = resources.configuration, resources.client.environment
        limiter = FairLimiter(configuration.concurrent_binds)
        adapter = ApiAdapter(
            resources.client,
            resources.view,
            resources.events,
            limiter,
            self._is_waited_for,
            resources.writes.ended,
        )

        def client_for(namespace: str, priority: int) -> Client:
            return resources.client.in_turn(lambda: limiter.taken(namespace, priority))

        dependencies = RunDependencies(
            port=adapter,
            store=adapter,
            plugins=PluginChain(resources.plugins, client_for, _measure),
            reporter=Reports(resources.events, environment.now_s),
            clock=environment.now_s,
            pause=resources.stop.pause,
            draw=environment.random.random,
            max_backoff_s=configuration.max_backoff_seconds,
        )
        self._retention = RetentionQueue(
            adapter.remove, configuration.time_to_live_seconds, environment.now_s
        )
        self._manager = Manager(dependencies, Fence(), self._retention, adapter)
        self._ending_namespaces = EndingNamespaces(resources.client)
        self._waits = Waits(self._manager, adapter, resources.stop.pause)
        self.source = resources.make_source(Intake(self._manager, adapter.shared))

    def _is_waited_for(self, namespace: str, statement_id: str) -> bool:
        # The manager is created after the adapter, which calls it.
        return self._manager.is_waited_for(namespace, statement_id)

    async def run(self) -> None:
        """Bind until the process is to stop, then finish the work in progress.

        When the Lease is lost, this task is cancelled and everything ends at once.
        """
        IN_FLIGHT.set_function(lambda: self._manager.run_count)
        if not await self._get_ready():
            return
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.source.run()),
                    group.create_task(self._waits.run()),
                    group.create_task(self._ending_namespaces.run()),
                    group.create_task(self._retention.run(self._manager.is_needed)),
                    *(
                        group.create_task(self._run_beside(plugin))
                        for plugin in self._resources.plugins
                        if isinstance(plugin, RunsBeside)
                    ),
                ]
                await self._resources.stop.wait()
                await self._manager.drain(_GRACE_S)
                for task in tasks:
                    task.cancel()
        finally:
            await self._manager.drain(0)
            IN_FLIGHT.set_function(lambda: 0)

    async def _run_beside(self, plugin: RunsBeside) -> None:
        """Run a plugin's background task beside the transactions; restart it when it ends."""
        while not self._resources.stop.is_set:
            try:
                await plugin.run(self._resources.client)
            except Exception:  # any exception of a third party's plugin
                _log.exception("a plugin's background task ended", plugin=type(plugin).__name__)
            await self._resources.stop.pause(_PLUGIN_RESTART_S)

    async def _get_ready(self) -> bool:
        """Fill the mirrors and the fence; return False if the process is to stop."""
        synced = asyncio.create_task(self._resources.view.wait_synced())
        stopping = asyncio.create_task(self._resources.stop.wait())
        await asyncio.wait({synced, stopping}, return_when=asyncio.FIRST_COMPLETED)
        synced.cancel()
        stopping.cancel()
        while not self._resources.stop.is_set:
            try:
                # A stale request must not be started before the newer scheduler's requests are
                # seen.
                for request in await self._resources.client.list(_TOKEN_CARRIERS):
                    self._manager.note_token(request.metadata.labels, request.token)
            except KubeError as error:
                log_failure(_log, "the BindRequests could not be listed", error)
                await self._resources.stop.pause(_LIST_RETRY_S)
            else:
                return True
        return False


def _measure(plugin: str, step: str, outcome: str, seconds: float) -> None:
    PLUGIN_SECONDS.labels(plugin, step, outcome).observe(seconds)
