"""The grouper process: waits for the Lease or leads, answers probes, and stops on a signal.

Called by the command line; `loop` does the work while this process holds the Lease. While it stands
by, its watches are filled already. A kill at any moment loses nothing: all there is to know lies in
the API server.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bindery import __version__
from bindery.api.configuration import GrouperConfiguration
from bindery.grouper.loop import GroupingLoop
from bindery.grouper.metrics import GROUPS, KINDS, LEADING, WORKLOADS
from bindery.grouper.networks.writing import HyperNodeWriter
from bindery.grouper.notices import NoticeBoard, written_events
from bindery.grouper.table import publishing
from bindery.grouper.table.loading import Table
from bindery.grouper.view import View
from bindery.grouper.writer import Writer
from bindery.kube import publication
from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.lease import LeaderElector, Leadership
from bindery.observability.health import HealthServer
from bindery.observability.listening import Listening

COMPONENT: Final = "bindery-grouper"
_OTHER_CONNECTIONS: Final = 16
"""Beside the writes in flight: lists, reads, events, the Lease."""


@dataclass(frozen=True)
class GrouperOptions:
    """The start options of the process."""

    configuration: GrouperConfiguration
    table: Table
    kubeconfig: Path | None
    identity: str
    """Unique to this process, for the Lease."""
    listening: Listening


async def run(options: GrouperOptions) -> None:
    """Group pods until cancelled.

    Raises:
        KubeError: there is no usable configuration of the API server.
    """
    connecting = Client.connect(
        options.kubeconfig,
        user_agent=f"{COMPONENT}/{__version__}",
        connections=options.configuration.concurrent_writes + _OTHER_CONNECTIONS,
    )
    async with connecting as client:
        await Grouper(options, client).run()


class Grouper:
    """One grouper process."""

    def __init__(self, options: GrouperOptions, client: Client) -> None:
        configuration = options.configuration
        self._options = options
        self._client = client
        self._events = EventRecorder(client, COMPONENT)
        self._view = View(client, options.table, configuration.scheduler_names)
        places = asyncio.Semaphore(configuration.concurrent_writes)
        self._writer = Writer(client, self._view.groups, places)

    async def run(self) -> None:
        """Stand for election and group pods while leading, until cancelled."""
        published = self._published()
        elector = LeaderElector(
            self._client,
            name=COMPONENT,
            identity=self._options.identity,
            configuration=self._options.configuration.leader_election,
            annotations=lambda: published,
        )
        WORKLOADS.set_function(lambda: len(self._view.all_workloads()))
        GROUPS.set_function(lambda: len(self._view.groups))
        KINDS.set_function(lambda: self._view.kinds)
        server = HealthServer(self._options.listening, self._checks())
        async with server, asyncio.TaskGroup() as group:
            background = [
                group.create_task(self._view.run()),
                group.create_task(self._events.run()),
            ]
            try:
                # Changes are collected for a loop; while there is none, they must not pile up.
                await elector.run(self._lead, stand_by=self._view.discard_changes)
            finally:
                for task in background:
                    task.cancel()

    def _published(self) -> dict[str, str]:
        """Return the annotations of the Lease: the configuration and the rows of users."""
        options = self._options
        return {
            **publication.annotations(options.configuration),
            **publishing.annotations(options.table),
        }

    async def _lead(self, leadership: Leadership) -> None:
        options = self._options
        loop = GroupingLoop(
            self._view,
            options.table,
            replace(self._writer, client=self._client.within(leadership.is_valid)),
            NoticeBoard(self._events, await written_events(self._client, COMPONENT)),
            options.configuration.debounce_seconds,
        )
        LEADING.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                if levels := options.configuration.hyper_node_levels:
                    group.create_task(HyperNodeWriter(self._client, levels).run())
                await loop.run()
        finally:
            LEADING.set(0)

    def _checks(self) -> dict[str, Callable[[], bool]]:
        return {
            "watches filled": self._view.is_filled,
            "watches up to date": self._view.is_up_to_date,
        }
