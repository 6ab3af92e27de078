"""Calls to the API server: implements `outcome.ports` over `bindery.kube`.

Used by all Runs concurrently. Bindings and calls of plugins wait for a place in the same limiter. A
status write is repeated until it has succeeded, because the scheduler keeps the pods' room until it
sees an outcome.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from bindery.binder.api_server.pods import ClusterView
from bindery.binder.api_server.shared_status import SharedStatuses
from bindery.binder.outcome.bindingmetadata import BindingMetadata
from bindery.binder.outcome.limiter import FairLimiter
from bindery.binder.outcome.ports import PodView, RequestChangedError, RequestGoneError
from bindery.binder.statements.manager import Malformed
from bindery.kube.client import Client
from bindery.kube.errors import (
    ApiError,
    ConflictError,
    KubeError,
    NotFoundError,
    ServerError,
    ThrottledError,
)
from bindery.kube.events.recorder import EventRecorder, reference
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement
from bindery.kube.objects.resources import BIND_REQUESTS, metadata_only
from bindery.kube.objects.watched import KubeObject, Meta
from bindery.kube.releases import release

_log: Final = structlog.get_logger(__name__)

_RETRY_S: Final = 0.1
_RETRY_CAP_S: Final = 10.0
"""The longest pause between two attempts of a status write."""
_MAY_PASS: Final = (ServerError, ThrottledError, ConflictError)
"""Errors after which the same write may succeed later."""


class ApiAdapter:
    """Implements `BindingPort`, `RequestStore` and `MalformedSink`."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        events: EventRecorder,
        limiter: FairLimiter,
        is_waited_for: Callable[[str, str], bool],
        left_writes_ended: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`is_waited_for`: whether a Statement in progress depends on this namespace and id."""
        self._client, self._events, self._limiter = client, events, limiter
        self.shared = SharedStatuses(self, is_waited_for)
        """The memory of requests whose Statements share a status."""
        self.left_writes_ended = left_writes_ended
        self.find_pod, self.read_pod = view.find_pod, view.read_pod
        self.void_bindings = view.void_bindings
        self.node_exists, self.write_status = view.node_exists, self.shared.write

    # ---- the rest of BindingPort ----------------------------------------------------------------

    async def bind(
        self, pod: PodView, node: str, metadata: BindingMetadata, *, version: str, priority: int = 0
    ) -> None:
        """Bind the pod to the node, after waiting for a place among the concurrent bindings."""
        labels, annotations = metadata.labels, metadata.annotations
        async with self._limiter.taken(pod.namespace, priority):
            await self._client.bind(
                pod.namespace,
                pod.name,
                pod.uid,
                node,
                version=version,
                labels=labels,
                annotations=annotations,
            )

    # ---- the rest of RequestStore ---------------------------------------------------------------

    async def try_to_write(
        self, statement: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement | None:
        """Write `status` once; return the newer state, or None if it was not written."""
        try:
            return await self.shared.try_to_write(statement, status)
        except (KubeError, RequestGoneError):
            return None  # the Statement's outcome, now or later, has more details

    async def confirm(self, statement: CommittedStatement) -> CommittedStatement:
        """Read the Statement again and return it."""
        meta = statement.metadata
        try:
            stored = await self.read(meta.namespace, meta.name)
        except NotFoundError as error:
            raise RequestGoneError from error
        found = next((each for each in stored.each() if each.key == statement.key), None)
        if found is None or stored.metadata.uid != meta.uid or stored.metadata.deletion_timestamp:
            raise RequestGoneError
        if statement.is_changed_in(found):
            raise RequestChangedError
        return found

    async def find_statement(
        self, namespace: str, statement_id: str
    ) -> Sequence[CommittedStatement]:
        """Read the existing parts of a Statement."""
        # One label cannot contain the IDs of all Statements of a request.
        found = await self._client.list(BIND_REQUESTS, namespace=namespace)
        return [
            part
            for stored in found
            if not stored.metadata.deletion_timestamp
            for part in stored.each()
            if part.key.statement == statement_id
        ]

    async def remove(self, namespace: str, name: str, uid: str) -> None:
        """Delete the request."""
        await self._client.delete(BIND_REQUESTS, name, namespace, uid=uid)

    async def release(self, request: Meta) -> None:
        """Let a request go that is being deleted, with retries while it exists."""
        delay_s = _RETRY_S
        while True:
            try:
                await release(self._client, request)
            except KubeError as error:
                log_failure(_log, "a request could not be released", error, name=request.name)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_CAP_S)
            else:
                return

    async def acknowledge(self, request: BindRequest, status: Mapping[str, object]) -> None:
        """Write the status of an announcement, with retries while the request exists."""
        meta = request.metadata
        await self._write_whole(meta.namespace, meta.name, meta.uid, status)

    # ---- StoredRequests -------------------------------------------------------------------------

    async def read(self, namespace: str, name: str) -> BindRequest:
        """Read a request."""
        return await self._client.get(BIND_REQUESTS, name, namespace)

    async def patch_status(self, stored: KubeObject, status: Mapping[str, object]) -> BindRequest:
        """Write the status of the request if it is still at the version of `stored`."""
        meta = stored.metadata
        # The UID protects another request of the same name, the version a changed spec.
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": status,
        }
        return await self._client.patch(
            BIND_REQUESTS, meta.name, patch, namespace=meta.namespace, subresource="status"
        )

    async def back_off(self, stored: KubeObject, error: KubeError, failures: int) -> None:
        """Pause before the next attempt; `failures`: the number of failed attempts so far."""
        if not isinstance(error, ConflictError):
            meta = stored.metadata
            _log.warning(
                "status write failed", namespace=meta.namespace, name=meta.name, error=str(error)
            )
        delay_s = min(_RETRY_S * 2.0 ** min(failures, 60), _RETRY_CAP_S)
        await asyncio.sleep(delay_s * (1 + self._client.environment.random.random()))

    # ---- MalformedSink --------------------------------------------------------------------------

    async def refuse(self, request: Malformed, status: Mapping[str, object]) -> None:
        """Write an event and, if the API server accepts it, the status."""
        _log.warning(
            "malformed request",
            namespace=request.namespace,
            name=request.name,
            message=request.message,
        )
        regarding = reference(BIND_REQUESTS, request.namespace, request.name, request.uid)
        self._events.warning(regarding, "Malformed", request.message)
        if request.statement is not None:
            with suppress(RequestGoneError, RequestChangedError):
                await self.write_status(request.statement, status)
            return
        await self._write_whole(request.namespace, request.name, request.uid, status)

    async def _write_whole(
        self, namespace: str, name: str, uid: str, status: Mapping[str, object]
    ) -> None:
        """Write the status of a whole request, which may be malformed or have no Statements.

        Returns when the write has succeeded, or when the API server rejects it finally.
        """
        resource = metadata_only(BIND_REQUESTS)
        delay_s = _RETRY_S
        while True:
            try:
                meta = (await self._client.get(resource, name, namespace)).metadata
                if meta.uid != uid:
                    return  # another request has its name
                # The version protects the other request; its UID would not.
                patch = {"metadata": {"resourceVersion": meta.resource_version}, "status": status}
                await self._client.patch(
                    resource, name, patch, namespace=namespace, subresource="status"
                )
            except NotFoundError:
                return
            except KubeError as error:
                if isinstance(error, ApiError) and not isinstance(error, _MAY_PASS):
                    _log.warning("request keeps its status", name=name, error=str(error))
                    return
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_CAP_S)
            else:
                return
