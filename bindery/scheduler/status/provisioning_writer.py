"""Writes ProvisioningRequests and their PodTemplates in the background.

`loop` offers the steps after each cycle. Templates are created before their request and deleted
before it, so that a request is never without its templates after a crash. Objects left by a crash
are deleted with their PodGroup, which owns them.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from bindery.api.names import API_VERSION
from bindery.kube.client import Client
from bindery.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    KubeError,
    NotFoundError,
)
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.provisioning import (
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    ProvisioningRequest,
)
from bindery.kube.objects.watched import Meta
from bindery.scheduler.status.provisioning import (
    ProvisioningChange,
    ProvisioningRequestDraft,
    template_name,
)

_CONCURRENT_WRITES = 4
_SHOWN_AFTER_S = 30.0
"""Time after which a step that is still offered is taken again, in seconds."""
_REFUSED = "ProvisioningRequestRefused"
_IMPOSSIBLE = "ProvisioningRequestImpossible"

_log = structlog.get_logger()


class ProvisioningWriter:
    """Creates and deletes requests. `clock` returns seconds since the epoch."""

    def __init__(self, client: Client, events: EventRecorder, clock: Callable[[], float]) -> None:
        self._client, self._events, self._clock = client, events, clock
        self._waiting: dict[str, ProvisioningChange] = {}
        """UID of a PodGroup -> its step."""
        self._tried: dict[object, float] = {}
        """Step -> the time of the last attempt, successful or not."""
        self._reported: set[object] = set()
        """The steps with problems that have an event, while they are offered."""
        self._wake = asyncio.Event()

    def offer(self, steps: Iterable[ProvisioningChange]) -> None:
        """Submit `steps` without recently tried ones; they replace all waiting steps."""
        since = self._clock() - _SHOWN_AFTER_S
        self._tried = {step: at for step, at in self._tried.items() if at > since}
        offered = list(steps)
        self._reported &= {step.is_known_as for step in offered}
        self._waiting = {
            step.group.uid: step
            for step in offered
            if step.is_known_as not in self._tried and step.is_known_as not in self._reported
        }
        if self._waiting:
            self._wake.set()

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading. Steps of an earlier term are dropped."""
        self._waiting = {}
        self._tried = {}
        while leadership.is_valid():
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()
                continue
            due = list(self._waiting.values())[:_CONCURRENT_WRITES]
            for step in due:
                del self._waiting[step.group.uid]
                self._tried[step.is_known_as] = self._clock()
            await asyncio.gather(*(self._take(step) for step in due))

    async def _take(self, step: ProvisioningChange) -> None:
        if step.problem:
            self._reported.add(step.is_known_as)
            text = f"no nodes are requested for it: {step.problem}"
            self._events.warning(_reference(step.group), _IMPOSSIBLE, text)
        try:
            if step.draft is not None:
                await self._create(step.draft)
            if step.old is not None:
                await self._delete(step.group, step.old)
        except KubeError as error:
            log_failure(_log, "nodes not requested", error, gang=step.group.name)
            if isinstance(error, ApiError):
                text = f"its ProvisioningRequest could not be written: {error}"
                self._events.warning(_reference(step.group), _REFUSED, text)

    async def _create(self, draft: ProvisioningRequestDraft) -> None:
        namespace = draft.group.namespace
        for template in draft.template_objects():
            try:
                await self._client.create(POD_TEMPLATES, template, namespace)
            except AlreadyExistsError:
                continue  # the name contains a digest of the content
        try:
            await self._client.create(PROVISIONING_REQUESTS, draft.to_object(), namespace)
        except AlreadyExistsError:
            found = await self._client.get(PROVISIONING_REQUESTS, draft.group.name, namespace)
            if found.group.uid != draft.group.uid:
                await self._delete_templates(draft.group, draft.counts)
                raise
        except ApiError:
            await self._delete_templates(draft.group, draft.counts)
            raise

    async def _delete(self, group: Meta, old: ProvisioningRequest) -> None:
        names = [each.pod_template_ref.name for each in old.spec.pod_sets]
        own = template_name(group, "")
        await self._delete_templates(group, [name for name in names if name.startswith(own)])
        meta = old.metadata
        try:
            await self._client.delete(
                PROVISIONING_REQUESTS, meta.name, meta.namespace, uid=meta.uid
            )
        except (NotFoundError, ConflictError):
            return

    async def _delete_templates(self, group: Meta, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._client.delete(POD_TEMPLATES, name, group.namespace)
            except NotFoundError:
                continue


def _reference(group: Meta) -> ObjectReference:
    return ObjectReference(API_VERSION, "PodGroup", group.namespace, group.name, group.uid)
