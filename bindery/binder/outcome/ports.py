"""The binder's two interfaces to the API server, as Protocols.

`run.transaction` needs `BindingPort`, `run.run` also `RequestStore`; `api_server.api_adapter`
implements both over `bindery.kube`. The property tests implement both over a dictionary, with kills
at any point. All methods raise `bindery.kube.errors.KubeError` if the API server cannot be reached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bindery.binder.outcome.bindingmetadata import BindingMetadata
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement
from bindery.kube.objects.watched import Meta


@dataclass(frozen=True)
class PodView:
    """The fields of a pod that the binder needs."""

    namespace: str
    name: str
    uid: str
    node: str
    """The pod's node; "" if it is not bound."""
    ending: bool
    """Whether the pod is being deleted or has ended."""
    version: str = ""
    """Its resourceVersion, where it was read."""


class BindingPort(Protocol):
    """Access to pods and nodes for a transaction."""

    async def find_pod(self, namespace: str, name: str, uid: str) -> PodView | None:
        """Return the pod of that name; from memory if memory shows the wanted, unbound pod."""

    async def read_pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name from the API server."""

    async def node_exists(self, name: str) -> bool:
        """Return whether the node exists and is not being deleted."""

    async def left_writes_ended(self) -> None:
        """Wait for writes whose steps were interrupted: they could arrive after a rollback."""

    async def void_bindings(self, namespace: str, name: str, uid: str) -> PodView | None:
        """Write to the pod, so that bindings of its earlier versions are refused; return it."""

    async def bind(
        self, pod: PodView, node: str, metadata: BindingMetadata, *, version: str, priority: int = 0
    ) -> None:
        """Bind the pod to the node; among waiting bindings, the highest priority goes first.

        `metadata` is written to the pod together with its node. It is refused if the pod has
        another `version`.

        Raises:
            ApiError: the binding was refused. After ServerError and OutcomeUnknownError it may have
                taken effect.
        """


class RequestGoneError(Exception):
    """The BindRequest was deleted (or another one has its name). The caller stops."""


class RequestChangedError(Exception):
    """The spec of the BindRequest has changed. The caller rolls back and starts again."""


class RequestStore(Protocol):
    """Access to Statements and their BindRequests for Runs."""

    async def acknowledge(self, request: BindRequest, status: Mapping[str, object]) -> None:
        """Write the status of an announcement, with retries while the request exists."""

    async def release(self, request: Meta) -> None:
        """Let a request go that is being deleted, with retries while it exists."""

    async def write_status(
        self, statement: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement:
        """Write `status`, with retries until it has succeeded; return the newer state.

        Raises:
            RequestGoneError, RequestChangedError: the status can no longer be written.
        """

    async def find_statement(
        self, namespace: str, statement_id: str
    ) -> Sequence[CommittedStatement]:
        """Read the existing parts of a Statement."""

    async def confirm(self, statement: CommittedStatement) -> CommittedStatement:
        """Read the Statement again and return it.

        Raises:
            RequestGoneError, RequestChangedError: the Statement was deleted or its spec has
                changed.
        """
