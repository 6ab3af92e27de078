"""Calls the steps of the configured plugins for one pod, in order, and measures them.

Built by `term` from the plugins of `registry`; called by `run.transaction`, which decides which
pods to prepare, finish or roll back. Invariant: except a cancellation, no exception of a plugin
leaves this module.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.bindingmetadata import BindingMetadata, recorded
from bindery.binder.outcome.outcome import PodFailure
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.interface import (
    BindContext,
    BinderPlugin,
    BindsInTurn,
    ConcernsSomePods,
    ConfirmsPreparation,
    EndsTurns,
    PluginError,
    PostBinds,
    PreBinds,
    RecordsAtBinding,
    RollsBack,
)
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding

_log: Final = structlog.get_logger(__name__)

Measure = Callable[[str, str, str, float], None]
"""Receives plugin, step, result (`DONE`, `CUT_OFF` or a reason) and seconds."""
ClientFor = Callable[[str, int], Client]
"""Returns the client for pods of a namespace in requests of a priority."""
Step = Callable[[BindContext], Awaitable[None]]

DONE: Final = "Done"
CUT_OFF: Final = "CutOff"
"""The request was withdrawn, or the process stops: the work so far is rolled back."""


@dataclass(frozen=True)
class Concern:
    """The plugins to call for a pod, and the kinds of their steps; equal for most pods."""

    plugins: frozenset[str]
    prepares: bool
    """Whether a plugin has a step before the binding or in place of it."""
    finishes: bool
    """Whether a plugin has a step after the binding."""


class PodContexts:
    """The contexts of one pod in one transaction, one for each plugin; created on first use."""

    def __init__(
        self,
        client_for: ClientFor,
        pod: PodView,
        statement: CommittedStatement,
        binding: PodBinding,
        concern: Concern,
    ) -> None:
        self._client_for, self.pod = client_for, pod
        self._statement, self._binding = statement, binding
        self._contexts: dict[str, BindContext] = {}
        self.concern = concern
        self.busy: str | None = None
        """The plugin with a running step for the pod."""

    def recorded(self) -> BindingMetadata:
        """Return the binder's own record for the pod, written with its binding."""
        return recorded(self._statement, self._binding)

    @property
    def waits_for(self) -> str:
        """What the running plugin waits for; "" if it has set no text."""
        context = self._contexts.get(self.busy) if self.busy is not None else None
        return context.waits_for if context is not None else ""

    def of(self, plugin: BinderPlugin) -> BindContext:
        """Return the context for `plugin`, the same object in every step."""
        context = self._contexts.get(plugin.name)
        if context is None:
            data = self._binding.plugin_data.get(plugin.name)
            context = self._contexts[plugin.name] = BindContext(
                client=self._client_for(self.pod.namespace, self._statement.spec.priority),
                pod=self.pod,
                statement=self._statement,
                binding=self._binding,
                data=data if isinstance(data, dict) else {},
            )
        return context


class PluginChain:
    """The plugins in their order, without state about pods."""

    def __init__(
        self, plugins: Sequence[BinderPlugin], client_for: ClientFor, measure: Measure
    ) -> None:
        self._client_for, self._measure = client_for, measure
        self._pre = [(p, p.pre_bind) for p in plugins if isinstance(p, PreBinds)]
        self._confirm = [(p, p.confirm) for p in plugins if isinstance(p, ConfirmsPreparation)]
        self._turn = [p for p in plugins if isinstance(p, BindsInTurn)]
        self._ends = [p for p in plugins if isinstance(p, EndsTurns)]
        self._records = [p for p in plugins if isinstance(p, RecordsAtBinding)]
        self._post = [(p, p.post_bind) for p in plugins if isinstance(p, PostBinds)]
        self._back = [(p, p.rollback) for p in reversed(plugins) if isinstance(p, RollsBack)]
        self._some = [p for p in plugins if isinstance(p, ConcernsSomePods)]
        self._every = frozenset(p.name for p in plugins if p not in self._some)
        self._concerns: dict[frozenset[str], Concern] = {}

    def contexts(
        self, pod: PodView, statement: CommittedStatement, binding: PodBinding
    ) -> PodContexts:
        """Return the contexts of a pod, to be passed to the steps."""
        names = self._every.union([p.name for p in self._some if _concerns(p, binding)])
        concern = self._concerns.get(names)
        if concern is None:
            concern = self._concerns[names] = self._concern(names)
        return PodContexts(self._client_for, pod, statement, binding, concern)

    def _concern(self, names: frozenset[str]) -> Concern:
        before = (
            *(p for p, _ in (*self._pre, *self._confirm)),
            *self._turn,
            *(p for p, _ in self._back),
        )
        return Concern(
            names,
            prepares=any(plugin.name in names for plugin in before),
            finishes=any(plugin.name in names for plugin, _ in self._post),
        )

    async def pre_bind(self, contexts: PodContexts) -> PodFailure | None:
        """Prepare the pod; the first failure ends the step."""
        return await self._call_until_failure("pre_bind", self._pre, contexts)

    async def confirm(self, contexts: PodContexts) -> PodFailure | None:
        """Check that the preparation is still valid; the first failure ends the step."""
        failure = await self._call_until_failure("confirm", self._confirm, contexts)
        if failure is not None:
            self.end_turn(contexts)
        return failure

    async def before_bind(self, contexts: PodContexts) -> PodFailure | None:
        """Wait for the pod's turn to be bound; the first failure ends the step."""
        steps = [(plugin, plugin.before_bind) for plugin in self._turn]
        return await self._call_until_failure("before_bind", steps, contexts)

    def binding_metadata(self, contexts: PodContexts) -> BindingMetadata | PodFailure:
        """Return the metadata to write with the pod's binding, or why it must not be bound."""
        metadata = contexts.recorded()
        for plugin in self._records:
            if plugin.name not in contexts.concern.plugins:
                continue
            try:
                further = plugin.binding_annotations(contexts.of(plugin))
            except Exception as error:
                return _failure(plugin, "binding_annotations", error)
            if further:
                metadata = replace(metadata, annotations={**metadata.annotations, **further})
        return metadata

    def end_turn(self, contexts: PodContexts) -> None:
        """Notify the plugins that the turn of the pod is over."""
        for plugin in self._ends:
            if plugin.name in contexts.concern.plugins:
                try:
                    plugin.end_turn(contexts.of(plugin))
                except Exception as error:
                    _failure(plugin, "end_turn", error)

    async def not_bound(self, contexts: PodContexts) -> None:
        """Release the pod's turn, in reverse order; failures are left to `rollback`."""
        for plugin in reversed(self._turn):
            await self._call(plugin, "not_bound", plugin.not_bound, contexts)

    async def post_bind(self, contexts: PodContexts) -> PodFailure | None:
        """Finish the bound pod; call all plugins; return the first failure."""
        return await self._call_all("post_bind", self._post, contexts)

    async def rollback(self, contexts: PodContexts) -> PodFailure | None:
        """Roll back in reverse order; call all plugins; return the first failure."""
        return await self._call_all("rollback", self._back, contexts)

    async def _call_until_failure(
        self, name: str, steps: Sequence[tuple[BinderPlugin, Step]], contexts: PodContexts
    ) -> PodFailure | None:
        for plugin, step in steps:
            failure = await self._call(plugin, name, step, contexts)
            if failure:
                return failure
        return None

    async def _call_all(
        self, name: str, steps: Sequence[tuple[BinderPlugin, Step]], contexts: PodContexts
    ) -> PodFailure | None:
        first: PodFailure | None = None
        for plugin, step in steps:
            failure = await self._call(plugin, name, step, contexts)
            first = first or failure
        return first

    async def _call(
        self, plugin: BinderPlugin, name: str, step: Step, contexts: PodContexts
    ) -> PodFailure | None:
        if plugin.name not in contexts.concern.plugins:
            return None
        now_s, ended = asyncio.get_running_loop().time, CUT_OFF
        started_s = now_s()
        contexts.busy = plugin.name
        try:
            failure = await self._outcome(plugin, name, step, contexts)
            ended = failure.reason if failure else DONE
        finally:
            contexts.busy = None
            contexts.of(plugin).waits_for = ""
            self._measure(plugin.name, name, ended, now_s() - started_s)
        return failure

    async def _outcome(
        self, plugin: BinderPlugin, name: str, step: Step, contexts: PodContexts
    ) -> PodFailure | None:
        try:
            await step(contexts.of(plugin))
        except Exception as error:
            return _failure(plugin, name, error)
        return None


def _failure(plugin: BinderPlugin, step: str, error: Exception) -> PodFailure:
    """Return the pod's failure for `error`, raised in `step` of `plugin`."""
    if isinstance(error, PluginError):
        return PodFailure(error.reason, f"{plugin.name}: {error.message}", error.permanent)
    if isinstance(error, KubeError):
        return PodFailure(
            BindFailureReason.PLUGIN_FAILED, f"{plugin.name}: {error}", permanent=False
        )
    _log.error("a plugin failed unexpectedly", plugin=plugin.name, step=step, exc_info=error)
    message = f"{plugin.name}: {type(error).__name__}: {error}"
    return PodFailure(BindFailureReason.PLUGIN_FAILED, message, permanent=False)


def _concerns(plugin: ConcernsSomePods, binding: PodBinding) -> bool:
    """Return whether `plugin` concerns the pod; True after an error, which a step then reports."""
    try:
        return plugin.concerns(binding)
    except Exception:
        _log.exception("a plugin failed unexpectedly", plugin=plugin.name, step="concerns")
        return True
