"""Keeps the HyperNodes of the cluster equal to the plan, while this process leads.

HyperNodes of others have priority: while there is one, none are made, because a node can be in one
tree only.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from bindery.api import names
from bindery.grouper.networks import domains
from bindery.grouper.networks.domains import Levels
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.resources import NODES, metadata_only
from bindery.kube.objects.topology import HYPER_NODES, HyperNode, HyperNodeSpec
from bindery.kube.watches.reflector import Change, Reflector

_log: Final = structlog.get_logger(__name__)

_COLLECT_S: Final = 1.0
"""Changes are collected for so long."""
_RETRY_S: Final = 10.0


class HyperNodeWriter:
    """Makes, changes and deletes the HyperNodes that have this component's label."""

    def __init__(self, client: Client, levels: Levels) -> None:
        self._client, self._levels = client, levels
        self._changed = asyncio.Event()
        self._nodes = Reflector(client, metadata_only(NODES), self._wake)
        self._made = Reflector(client, HYPER_NODES, self._wake)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._made.run())
            await self._nodes.synced.wait()
            await self._made.synced.wait()
            while True:
                self._changed.clear()
                try:
                    await self._write()
                except KubeError as error:
                    log_failure(_log, "HyperNodes were not written", error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                await self._changed.wait()
                await asyncio.sleep(_COLLECT_S)

    async def _write(self) -> None:
        stored = {each.metadata.name: each for each in self._made.objects.values()}
        own = {name: each for name, each in stored.items() if _is_own(each)}
        nodes = (node.metadata.labels for node in self._nodes.objects.values())
        wanted = domains.planned(nodes, self._levels) if len(own) == len(stored) else {}
        for name in own.keys() - wanted.keys():
            try:
                await self._client.delete(HYPER_NODES, name, uid=own[name].metadata.uid)
            except (NotFoundError, ConflictError):
                self._changed.set()
        for name, spec in wanted.items():
            if name not in own or own[name].spec != msgspec.convert(spec, HyperNodeSpec):
                await self._put(name, spec, own.get(name))

    async def _put(self, name: str, spec: Mapping[str, Any], old: HyperNode | None) -> None:
        metadata: dict[str, Any] = {
            "name": name,
            "labels": {names.MADE_BY_LABEL: names.MADE_BY_GROUPER},
        }
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "HyperNode",
            "metadata": metadata,
            "spec": spec,
        }
        try:
            if old is None:
                await self._client.create(HYPER_NODES, body)
            else:
                metadata["resourceVersion"] = old.metadata.resource_version
                await self._client.replace(HYPER_NODES, name, body)
        except (AlreadyExistsError, ConflictError, NotFoundError):
            self._changed.set()  # another version is on its way in the watch

    def _wake(self, _change: Change[Any]) -> None:
        self._changed.set()


def _is_own(hyper_node: HyperNode) -> bool:
    return hyper_node.metadata.labels.get(names.MADE_BY_LABEL) == names.MADE_BY_GROUPER
