"""The extension points of binder plugins: one Protocol for each step.

Plugins come from the entry point group `bindery.binder_plugins`; `registry` builds them, `chain`
calls them. The order of the configuration is the order of the steps; `rollback` goes backwards. The
process may die at any point of a step, and the next process calls the step again: **all steps are
idempotent**, and state that must outlive the process is written to the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.ports import PodView
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding

PodManifest = dict[str, Any]
"""A pod manifest with all fields."""


class PluginError(Exception):
    """A step of a plugin failed for a known reason, shown in the BindRequest and in an event.

    Any other exception of a plugin counts as PluginFailed, not permanent, and is logged in full.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = BindFailureReason.PLUGIN_FAILED,
        permanent: bool = False,
    ):
        super().__init__(message)
        self.message = message
        self.reason = reason
        """One CamelCase word."""
        self.permanent = permanent
        """Whether another attempt cannot help, so that the scheduler should plan again at once."""


@dataclass
class BindContext:
    """One pod in one transaction, for one plugin."""

    client: Client
    pod: PodView
    statement: CommittedStatement
    """The Statement (one part of it) that contains the pod."""
    binding: PodBinding
    data: Mapping[str, Any]
    """The data that the scheduler plugin of the same name has passed for this pod."""
    state: dict[str, object] = field(default_factory=dict)
    """The plugin's own state for this pod between steps, lost with the process."""
    waits_for: str = ""
    """What a long step waits for, such as "claim data to be bound". Set by the plugin; shown in the
    BindRequest while the step runs."""


class BinderPlugin(Protocol):
    """The base of every plugin. The steps are the Protocols below."""

    @property
    def name(self) -> str:
        """The plugin's name in the configuration, in `pluginData` and in metrics."""


@runtime_checkable
class ValidatesPods(Protocol):
    """Refuses pods at admission.

    Called by the admission webhook (`bindery.binder.webhook`) for each new pod of the scheduler,
    never by the binder. The method must be pure and quick. While no webhook answers, pods are
    created without this check, so `pre_bind` must repeat checks on which the plugin relies.
    """

    def validate(self, pod: PodManifest) -> list[str]:
        """Return the problems of the pod, one sentence each; empty if there are none.

        Called for new pods, and for unbound pods whose annotations change. For a change, the method
        is also called with the old pod, and old problems refuse nothing. An exception refuses
        nothing: the user gets a warning, and the pod is admitted.
        """


@runtime_checkable
class MutatesPods(Protocol):
    """Changes pods at admission.

    Called by the admission webhook, before any `validate`, in the configured order: each plugin
    gets the result of the plugins before it. A plugin may be called again for a pod that it has
    already changed, and must then return the pod unchanged.
    """

    def mutate(self, pod: PodManifest) -> PodManifest:
        """Return the changed pod; do not modify `pod`.

        An exception changes nothing: the user gets a warning, and the pod is admitted.
        """


@runtime_checkable
class ConcernsSomePods(Protocol):
    """Decides from the Statement alone whether a plugin concerns a pod."""

    @property
    def name(self) -> str:
        """The name, as in `BinderPlugin`."""

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether to call the plugin's steps for the pod of `binding`; pure and quick.

        The result must be the same for every step, and in another binder that takes over. A plugin
        without this method is called for every pod.
        """


@runtime_checkable
class PreBinds(Protocol):
    """Prepares a pod before any pod of the gang is bound."""

    async def pre_bind(self, context: BindContext) -> None:
        """Prepare the pod; called in every attempt, concurrently for the pods of a gang.

        May take long, because other pods wait for nothing that it holds; may be cancelled.

        Raises:
            PluginError: the pod cannot be bound now, or never.
        """


@runtime_checkable
class ConfirmsPreparation(Protocol):
    """Checks again before the first pod of a gang is bound: preparing may take long."""

    async def confirm(self, context: BindContext) -> None:
        """Check that the preparation is still valid, after `pre_bind` of all pods.

        Raises:
            PluginError: the pod must not be bound in this attempt.
        """


@runtime_checkable
class BindsInTurn(Protocol):
    """Takes an exclusive resource for the moment of a binding.

    The resource is taken after the whole gang is prepared, pod by pod. A plugin that took it in
    `pre_bind` would keep it while the rest of the gang waits, and two gangs could wait for each
    other without end.
    """

    async def before_bind(self, context: BindContext) -> None:
        """Wait for the pod's turn; its binding is sent right after. May be cancelled.

        Raises:
            PluginError: the turn does not come; the pod is not bound in this attempt.
        """

    async def not_bound(self, context: BindContext) -> None:
        """Release at once everything that `before_bind` took: the pod is certainly not bound.

        Other pods of the gang may wait for the resource, so it is released before `rollback`.
        `rollback` follows at the end of the attempt, and also releases after an interruption.

        Raises:
            PluginError: the release failed; `rollback` tries again.
        """


@runtime_checkable
class EndsTurns(Protocol):
    """Receives a call when the turn of a pod is over, so that the next pod can be bound."""

    def end_turn(self, context: BindContext) -> None:
        """Let the next pod proceed; pure and quick.

        Called after a binding with any outcome, after `before_bind` failed or was interrupted, and
        after `confirm` failed. If the turn never came, only `rollback` is called.
        """


@runtime_checkable
class RecordsAtBinding(Protocol):
    """Writes annotations to the pod in the write that binds it."""

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        """Return the annotations to write together with the pod's node; pure and quick.

        Called after `before_bind`, right before the binding is sent. Existing annotations of the
        same names are overwritten.

        Raises:
            PluginError: the pod must not be bound in this attempt.
        """


@runtime_checkable
class RunsBeside(Protocol):
    """Works in the background, for example on watches."""

    async def run(self, client: Client) -> None:
        """Work while this binder leads; restarted after an exception, cancelled at the end.

        Steps may be called before this task is ready, and must then wait for it.
        """


@runtime_checkable
class PostBinds(Protocol):
    """Finishes work after the binding of the pod."""

    async def post_bind(self, context: BindContext) -> None:
        """Finish the work; a failure is retried, but the pod stays bound.

        Raises:
            PluginError: the step failed.
        """


@runtime_checkable
class RollsBack(Protocol):
    """Undoes `pre_bind`."""

    async def rollback(self, context: BindContext) -> None:
        """Remove everything prepared for this pod and this Statement, and nothing else.

        Called in reverse order for a pod that will not be bound by this attempt. Also called when
        `pre_bind` did not run or was interrupted, in this process or an earlier one: having nothing
        to remove is not an error. Never called for a bound pod.

        Raises:
            PluginError: the step failed; it is called again.
        """
