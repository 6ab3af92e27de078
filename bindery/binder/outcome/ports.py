"""The two narrow doors of the binder to the API server, as Protocols.

`run.transaction` needs `BindingPort`, `run.run` also `RequestStore`; `api_server.api_adapter`
implements both over `bindery.kube`. The property tests implement them over a dictionary that can be
killed anywhere. All methods raise `bindery.kube.errors.KubeError` when the API server cannot be
asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bindery.binder.outcome.bindingmetadata import BindingMetadata
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement


@dataclass(frozen=True)
class PodView:
    """What the binder must know of a pod."""

    namespace: str
    name: str
    uid: str
    node: str
    """The node that it is bound to; "" if none."""
    ending: bool
    """Whether it is being deleted or has ended."""


class BindingPort(Protocol):
    """Pods and nodes, as the transaction sees them."""

    async def find_pod(self, namespace: str, name: str, uid: str) -> PodView | None:
        """Return the pod of that name; from memory when that shows the wanted, unbound pod."""

    async def read_pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name as the API server has it now."""

    async def node_exists(self, name: str) -> bool:
        """Return whether the node exists and is not being deleted."""

    async def bind(
        self, pod: PodView, node: str, metadata: BindingMetadata, *, priority: int = 0
    ) -> None:
        """Bind the pod to the node; of bindings that wait, the highest priority goes first.

        `metadata` is written to the pod together with its node.

        Raises:
            ApiError: it was refused. ServerError and OutcomeUnknownError: it may have taken effect.
        """


class RequestGoneError(Exception):
    """The BindRequest does not exist any more (or another has its name). The caller stops."""


class RequestChangedError(Exception):
    """The spec of the BindRequest has changed. The caller rolls back and starts again."""


class RequestStore(Protocol):
    """Statements and their BindRequests, as Runs see them."""

    async def acknowledge(self, request: BindRequest, status: Mapping[str, object]) -> None:
        """Write the status of an announcement until it stands, or the request is gone."""

    async def write_status(
        self, statement: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement:
        """Write `status`, again and again until it is known to stand; return the newer state.

        Raises:
            RequestGoneError, RequestChangedError: it cannot stand any more.
        """

    async def find_statement(
        self, namespace: str, statement_id: str
    ) -> Sequence[CommittedStatement]:
        """Read the parts of a Statement that are there now."""

    async def confirm(self, statement: CommittedStatement) -> CommittedStatement:
        """Read the Statement again and return it.

        Raises:
            RequestGoneError, RequestChangedError: it is not what it was.
        """
