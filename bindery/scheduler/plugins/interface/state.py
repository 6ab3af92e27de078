"""Extension points for state that a plugin observes, keeps in a ledger or gives to the binder."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change
from bindery.scheduler.ledgers.base import Ledger, Operation
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.views import StateView
from bindery.scheduler.plugins.interface.base import Plugin
from bindery.scheduler.plugins.view import SessionView

# ---- objects of the cluster ----


@runtime_checkable
class Watches(Protocol):
    """Observes objects of the cluster."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds for `observe`; the scheduler's own kinds are allowed.

        Kinds that the API server does not serve are ignored.
        """

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change of one of these kinds; called between cycles only.

        A new plugin gets every existing object as ADDED. Returns whether cached results of its
        `node_failures` may be outdated.
        """


@runtime_checkable
class SessionPreparation(Protocol):
    """Updates its memory when a session opens, because questions must not change it."""

    def prepare(self, session: SessionView) -> None:
        """Update what time changes. Called before any other method gets the session."""


@runtime_checkable
class Supports(Protocol):
    """Supports special needs of pods; without such a plugin, pods with the need wait."""

    def supported_needs(self) -> Collection[Need]:
        """Return the supported needs; they must not change."""


@runtime_checkable
class OffersGpus(Protocol):
    """Has GPUs that nodes do not have as resources, for the total that queues share."""

    def offered_gpus(self, state: StateView) -> Mapping[int, int]:
        """Return node row -> number of such GPUs; `NO_ROW` for GPUs that several nodes can use."""


# ---- the plugin's own ledger ----


@runtime_checkable
class LedgerProvider(Protocol):
    """Has a ledger of its own, called for every operation and for its undoing."""

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:
        """Return the ledger for this session; it may write the columns of `state`."""


# ---- BindRequests ----


@runtime_checkable
class BindRequestMutation(Protocol):
    """Annotates BindRequests when a Statement is committed."""

    def annotations(
        self, session: SessionView, operations: Sequence[Operation]
    ) -> Mapping[str, str]:
        """Return annotations for the BindRequest."""


@runtime_checkable
class BindData(Plugin, Protocol):
    """Hands data to the binder plugin of the same name, for each pod."""

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:
        """Return the JSON object for `task` in `pluginData`, or None for none."""


@runtime_checkable
class BindEffects(Plugin, Protocol):
    """Simulates the binder plugin of the same name, for rehearsals and scenarios only."""

    def bind_effects(
        self, pod: Pod, node_name: str, data: Mapping[str, Any]
    ) -> Iterable[KubeObject]:
        """Return the changed objects after the binder has bound `pod` to the node.

        `data` is the result of `bind_data`. The changed pod may be among the objects. Called before
        `pod` has its node name.
        """
