"""The extension points of binder plugins: one Protocol for each step.

Plugins come from the entry point group `bindery.binder_plugins`; `registry` builds them, `chain`
calls them. The order of the configuration is the order of the steps; `rollback` goes backwards.
Every step may be cut off at any point by the death of the process and is then called again by the
next one: **all steps are idempotent**, and what must outlive the process is written to the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.ports import PodView
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding

PodManifest = dict[str, Any]
"""A pod as the API server has it, with all its fields."""


class PluginError(Exception):
    """A step of a plugin failed for a known reason; shown at the BindRequest and in an event.

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
        """Whether trying again cannot help, so that the scheduler should plan again at once."""


@dataclass
class BindContext:
    """One pod in one transaction, as one plugin sees it."""

    client: Client
    pod: PodView
    statement: CommittedStatement
    """The BindRequest (the part of the Statement) that names the pod."""
    binding: PodBinding
    data: Mapping[str, Any]
    """What the scheduler plugin of the same name handed over for this pod."""
    state: dict[str, object] = field(default_factory=dict)
    """The plugin's own notes on this pod from step to step. They are lost with the process."""
    waits_for: str = ""
    """What a step that takes long waits for, such as "claim data to be bound". Set by the plugin;
    shown at the BindRequest as long as the step goes on."""


class BinderPlugin(Protocol):
    """What every plugin has. The steps are the Protocols below."""

    @property
    def name(self) -> str:
        """Its name in the configuration, in `pluginData` and in metrics."""


@runtime_checkable
class ValidatesPods(Protocol):
    """Refuses pods at admission.

    Called by the admission webhook (`bindery.binder.webhook`) for each pod of the scheduler's that
    is to be created, never by the binder. It must be pure and quick. A pod may still come through
    unseen while no webhook answers: what must hold has to be checked again in `pre_bind`.
    """

    def validate(self, pod: PodManifest) -> list[str]:
        """Return what is wrong with the pod, one sentence each; empty if nothing is.

        Called for pods that are created, and for those not bound yet whose annotations change:
        then also for the pod as it was, whose problems refuse nothing.
        An exception refuses nothing: the user is warned, and the pod comes through.
        """


@runtime_checkable
class MutatesPods(Protocol):
    """Changes pods at admission.

    Called by the admission webhook, before any `validate`, in the configured order: each plugin
    sees what those before it have changed. It may be called again for a pod that it has changed
    already, and then must leave it as it is.
    """

    def mutate(self, pod: PodManifest) -> PodManifest:
        """Return the pod as it shall be; `pod` itself stays as it is.

        An exception changes nothing: the user is warned, and the pod comes through.
        """


@runtime_checkable
class ConcernsSomePods(Protocol):
    """Decides from the Statement alone whether a pod concerns the plugin; most have no devices."""

    @property
    def name(self) -> str:
        """As in `BinderPlugin`."""

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether steps are to be called for the pod of `binding`; pure and quick.

        The answer must hold for every step, and for a binder that takes over. A plugin that does
        not have this method is called for every pod.
        """


@runtime_checkable
class PreBinds(Protocol):
    """Makes things ready on the way to the node, before any pod of the gang is bound."""

    async def pre_bind(self, context: BindContext) -> None:
        """Prepare; called in every attempt, for pods of one gang at the same time.

        May take long (it holds nothing that others wait for) and may be cancelled.

        Raises:
            PluginError: the pod cannot be bound now, or never.
        """


@runtime_checkable
class ConfirmsPreparation(Protocol):
    """Checks again before the first pod of a gang is bound: preparing the others may take long."""

    async def confirm(self, context: BindContext) -> None:
        """Check that what `pre_bind` prepared still holds; called when it has passed for all pods.

        Raises:
            PluginError: the pod must not be bound in this attempt.
        """


@runtime_checkable
class BindsInTurn(Protocol):
    """Takes an exclusive resource for the moment of a binding.

    It is taken after all of a gang is prepared, pod by pod: whoever took it in `pre_bind` would
    keep it while the rest of the gang waits, and two gangs could wait for each other for ever.
    """

    async def before_bind(self, context: BindContext) -> None:
        """Wait for the pod's turn; its binding is sent right after. May be cancelled.

        Raises:
            PluginError: its turn does not come; the pod is not bound in this attempt.
        """

    async def not_bound(self, context: BindContext) -> None:
        """Release at once everything that `before_bind` took: the pod is surely not bound.

        Others of the same gang may be waiting for it, so this does not wait for `rollback`, which
        follows when the attempt ends and does the same for what was cut off.

        Raises:
            PluginError: it did not work; `rollback` tries again.
        """


@runtime_checkable
class EndsTurns(Protocol):
    """Is told when the turn of a pod is over, so that the next pod can be bound."""

    def end_turn(self, context: BindContext) -> None:
        """Let the next pod go on; pure and quick.

        Called when a binding was tried, whatever its outcome, when `before_bind` failed or was cut
        off, and when `confirm` failed. If the turn never came, only `rollback` is called.
        """


@runtime_checkable
class RecordsAtBinding(Protocol):
    """Records something on the pod in the write that binds it."""

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        """Return the annotations that the pod gets together with its node; pure and quick.

        Called after `before_bind`, right before the binding is sent. Annotations of the same name
        that the pod has are overwritten.

        Raises:
            PluginError: the pod must not be bound in this attempt.
        """


@runtime_checkable
class RunsBeside(Protocol):
    """Works in the background, for example on watches."""

    async def run(self, client: Client) -> None:
        """Work for as long as this binder leads; started again if it raises, cancelled at the end.

        Steps may be called before it is ready, and wait for it.
        """


@runtime_checkable
class PostBinds(Protocol):
    """Finishes work after the pod is bound."""

    async def post_bind(self, context: BindContext) -> None:
        """Finish; a failure is tried again, but the pod stays bound.

        Raises:
            PluginError: it did not work.
        """


@runtime_checkable
class RollsBack(Protocol):
    """Undoes `pre_bind`."""

    async def rollback(self, context: BindContext) -> None:
        """Remove everything prepared for this pod and this Statement, and nothing else.

        Called in reverse order for a pod that will not be bound by this attempt. Also called when
        `pre_bind` did not run or was cut off, here or in a process that died: there may be nothing
        to remove, and that is no error. Never called for a pod that is bound.

        Raises:
            PluginError: it did not work; it is called again.
        """
