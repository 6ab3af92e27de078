"""Brings the stored PodGroups of one workload into line with its plan.

Called by `loop` for one workload at a time. It writes only differences, and every write has the
resourceVersion that it changes, so that two groupers, or a killed one, do no harm. The invariant:
a PodGroup without our label is never written, and no PodGroup with bound pods is deleted.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import structlog

from bindery.api import names
from bindery.grouper.groups import GIVEN_ANNOTATIONS, GIVEN_LABELS, Groups, is_as_wanted
from bindery.grouper.metrics import WRITES
from bindery.grouper.notices import Notice, Reason
from bindery.grouper.objects import WRITTEN_GROUPS, WrittenGroup
from bindery.grouper.table.groups import Group
from bindery.kube.client import Client
from bindery.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
)

_log: Final = structlog.get_logger(__name__)

_HasBound = Callable[[WrittenGroup], bool]


@dataclass(frozen=True)
class Writer:
    """Writes PodGroups, so many at once as `places` lets in."""

    client: Client
    groups: Groups
    places: asyncio.Semaphore

    async def settle(
        self,
        wanted: Sequence[Group],
        stored: Iterable[WrittenGroup],
        has_bound: _HasBound,
    ) -> list[Notice]:
        """Write `wanted` where it differs, and delete what is left of `stored`.

        Returns what the users concerned should know. `has_bound`: whether pods are bound under it.

        Raises:
            KubeError: a write has failed that may succeed later.
        """
        keys = {(group.namespace, group.name) for group in wanted}
        notices: list[Notice] = []
        for old in stored:
            if (old.metadata.namespace, old.metadata.name) not in keys and not has_bound(old):
                await self._delete(old)
        for group in wanted:
            notices += await self._write(group, has_bound)
        return notices

    async def _write(self, wanted: Group, has_bound: _HasBound) -> list[Notice]:
        stored = self.groups.get(wanted.namespace, wanted.name)
        try:
            if stored is None:
                try:
                    await self._create(wanted)
                except AlreadyExistsError:
                    return await self._update_unseen(wanted, has_bound)
                return []
            return await self._update(stored, wanted, has_bound)
        except NamespaceTerminatingError:
            return []
        except (ForbiddenError, InvalidError) as error:
            return [Notice(wanted.owner, Reason.GROUP_REFUSED, _refusal(wanted, str(error)))]

    async def _update_unseen(self, wanted: Group, has_bound: _HasBound) -> list[Notice]:
        """Update a PodGroup that the watch has not shown; return a notice if it is not ours."""
        try:
            stored = await self.client.get(WRITTEN_GROUPS, wanted.name, wanted.namespace)
        except NotFoundError:
            await self._create(wanted)
            return []
        if stored.metadata.labels.get(names.MADE_BY_LABEL) != names.MADE_BY_GROUPER:
            message = _refusal(wanted, "somebody else has made a PodGroup of this name")
            return [Notice(wanted.owner, Reason.NAME_TAKEN, message)]
        self.groups.note(stored)
        return await self._update(stored, wanted, has_bound)

    async def _create(self, wanted: Group) -> None:
        async with self.places:
            body = wanted.to_object()
            created = await self.client.create(WRITTEN_GROUPS, body, wanted.namespace)
        WRITES.labels("create").inc()
        self.groups.note(created)

    async def _update(
        self, stored: WrittenGroup, wanted: Group, has_bound: _HasBound
    ) -> list[Notice]:
        while True:
            # After a conflict pods may be charged that were not.
            kept, notices = _with_queue_kept(stored, wanted, has_bound)
            if is_as_wanted(stored, kept):
                return notices
            try:
                async with self.places:
                    changed = await self.client.replace(
                        WRITTEN_GROUPS, kept.name, _replacement(stored, kept), kept.namespace
                    )
            except ConflictError:
                stored = await self.client.get(WRITTEN_GROUPS, kept.name, kept.namespace)
                self.groups.note(stored)
            except NotFoundError:
                self.groups.note_deleted(stored)
                await self._create(wanted)
                return []
            else:
                WRITES.labels("update").inc()
                self.groups.note(changed)
                return notices

    async def _delete(self, group: WrittenGroup) -> None:
        meta = group.metadata
        try:
            async with self.places:
                await self.client.delete(WRITTEN_GROUPS, meta.name, meta.namespace, uid=meta.uid)
        except (NotFoundError, ConflictError):
            pass  # gone, or another object of the same name
        else:
            WRITES.labels("delete").inc()
            _log.info("deleted", namespace=meta.namespace, name=meta.name)
        self.groups.note_deleted(group)


def _with_queue_kept(
    stored: WrittenGroup, wanted: Group, has_bound: _HasBound
) -> tuple[Group, list[Notice]]:
    """Return `wanted` with the stored queue while pods are bound in it: they stay charged to it.

    The status has the mark of that a moment after the pods, and drops it a moment after them.
    """
    queue = stored.spec.get("queue", "")
    if queue == wanted.spec.queue or not (stored.status.queue or has_bound(stored)):
        return wanted, []
    charged = stored.status.queue or queue or names.DEFAULT_QUEUE
    message = (
        f"PodGroup {wanted.name} stays in queue {charged} while pods of it are bound, and goes "
        f"to {wanted.spec.queue or 'the default queue of its namespace'} after that"
    )
    kept = replace(wanted, spec=msgspec.structs.replace(wanted.spec, queue=queue))
    return kept, [Notice(wanted.owner, Reason.QUEUE_KEPT, message)]


def _replacement(stored: WrittenGroup, wanted: Group) -> Mapping[str, Any]:
    """Return `wanted` with the metadata of `stored` that other writers have added."""
    body: dict[str, Any] = wanted.to_object()
    ours: dict[str, Any] = body["metadata"]
    meta = stored.metadata
    kept = {key: text for key, text in meta.annotations.items() if key not in GIVEN_ANNOTATIONS}
    labels = {key: text for key, text in meta.labels.items() if key not in GIVEN_LABELS}
    metadata = {
        **ours,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "labels": {**labels, **ours["labels"]},
        "annotations": {**kept, **ours.get("annotations", {})},
    }
    if meta.finalizers:
        metadata["finalizers"] = meta.finalizers
    return {**body, "metadata": metadata}


def _refusal(wanted: Group, why: str) -> str:
    return f"PodGroup {wanted.name} cannot be written, so its pods wait: {why}"
