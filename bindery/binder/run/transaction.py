"""The bind transaction: binds one Statement completely or not at all.

`run` calls `attempt` until the verdict is final, and `abandon` when its request is deleted or
changed, or the Statement is withdrawn. An attempt is: check -> PreBind of every plugin for every
pod -> confirm -> bind all -> PostBind. No state is kept elsewhere: after a crash, the transaction
is created again from its parts and finds its progress by reading the pods. Invariants: no binding
is sent while fewer than `minBound` pods can be bound, unless a pod is bound already; a pod that is
bound, or may be bound, is never rolled back; no binding of a pod that is given up takes effect
later (decision 070).
"""

from asyncio import TaskGroup
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.bindingmetadata import BindingMetadata
from bindery.binder.outcome.outcome import (
    BoundReason,
    Outcome,
    PodFailure,
    PodOutcome,
    Verdict,
    Wait,
    WaitReason,
)
from bindery.binder.outcome.ports import BindingPort, PodView
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.run.pod_progress import BindingState, PodProgress
from bindery.kube.errors import ConflictError, KubeError, OutcomeUnknownError, ServerError
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding

_SENDINGS: Final = 3
"""How often a binding is sent while others write to the pod."""


class BindTransaction:
    """Binds the pods of one Statement to their nodes. Used by one task at a time."""

    def __init__(
        self,
        parts: Sequence[CommittedStatement],
        port: BindingPort,
        plugins: PluginChain,
        *,
        fence: Callable[[], PodFailure | None],
        adopted: bool,
    ) -> None:
        """Create a transaction of all parts of a Statement.

        Args:
            parts: in order.
            port: access to pods and nodes.
            plugins: the plugins' steps beside the binding.
            fence: returns whether a newer scheduler has planned since; called in each attempt.
            adopted: whether a process that died may have prepared pods.
        """
        self._port, self._plugins, self._fence = port, plugins, fence
        self._refusals: dict[str, PodFailure] = {}
        self._pods: dict[str, PodProgress] = {}
        for part in parts:
            for binding in part.spec.pods:
                self._pods[binding.pod_uid] = self._pod(part, binding, adopted=adopted)
        self._priority = max(part.spec.priority for part in parts)
        minimum = parts[0].spec.min_bound
        self._needed = len(self._pods) if minimum is None else min(minimum, len(self._pods))

    def _pod(
        self, statement: CommittedStatement, binding: PodBinding, *, adopted: bool
    ) -> PodProgress:
        namespace = statement.metadata.namespace
        view = PodView(namespace, binding.pod_name, binding.pod_uid, node="", ending=False)
        contexts = self._plugins.contexts(view, statement, binding)
        return PodProgress(
            binding,
            namespace,
            contexts,
            prepared=adopted and contexts.concern.prepares,
            in_doubt=adopted,
            unfinished=contexts.concern.finishes,
        )

    @property
    def begun(self) -> bool:
        """Whether a pod is bound or may be bound."""
        return any(
            pod.step in (BindingState.UNCERTAIN, BindingState.BOUND) for pod in self._pods.values()
        )

    @property
    def wait(self) -> Wait:
        """What the running attempt waits for."""
        busy = Counter(
            (pod.contexts.busy, pod.contexts.waits_for)
            for pod in self._pods.values()
            if pod.contexts.busy is not None
        )
        if busy:
            (plugin, text), count = busy.most_common(1)[0]
            activity = f"waits for {text}" if text else "is at work"
            message = f"the plugin {plugin} {activity}, for {count} of {len(self._pods)} pods"
            return Wait(WaitReason.PREPARING, message, self.begun)
        bound = sum(pod.step is BindingState.BOUND for pod in self._pods.values())
        message = (
            f"{bound} of {len(self._pods)} pods are bound; the rest wait for a free place among "
            "the bindings in progress, or for the API server"
        )
        return Wait(WaitReason.WAITS_FOR_TURN, message, self.begun)

    def refuse(self, refusals: Mapping[str, PodFailure]) -> None:
        """Record the pods that must not be bound: pod UID -> reason."""
        self._refusals.update(refusals)

    async def attempt(self, *, last: bool) -> Outcome:
        """Try once to bind the unbound pods; `last`: give up pods that fail now.

        Even then the verdict is RETRY while the result of a binding is unknown, and while a partly
        bound gang can still be completed.
        """
        for pod in self._pods.values():
            if pod.failure and not pod.failure.permanent:
                pod.failure = None
        await self._check(self._open())
        self._apply_refusals()
        concerned = [pod for pod in self._open() if pod.contexts.concern.prepares]
        if self._may_bind() and concerned:
            await self._for_each(concerned, self._prepare)
            # Preparing may take minutes; a pod or node deleted meanwhile should be noticed before
            # the first pod of a gang is bound.
            await self._check(self._open())
            if self._may_bind():
                await self._for_each((p for p in concerned if p.is_open), self._confirm)
        if self._may_bind():
            await self._for_each(self._open(), self._bind)
        unfinished = (
            p for p in self._pods.values() if p.step is BindingState.BOUND and p.unfinished
        )
        await self._for_each(unfinished, self._finish)
        await self._roll_back(self._aborted())
        return self._outcome(last=last)

    async def abandon(self) -> bool:
        """Roll back the unbound pods of a Statement that is not carried out any longer.

        Returns:
            True if the rollback is complete; otherwise call again.
        """
        for pod in self._pods.values():
            is_known = pod.step not in (BindingState.UNSEEN, BindingState.UNCERTAIN)
            if not is_known and (pod.prepared or pod.in_doubt):
                await self._check([pod])
        await self._roll_back(list(self._pods.values()))
        return self.is_clean

    @property
    def is_clean(self) -> bool:
        """Whether no rollback is needed."""
        return not any(
            (pod.prepared or pod.in_doubt) and pod.step is not BindingState.BOUND
            for pod in self._pods.values()
        )

    def outcome_of_abandonment(self, failure: PodFailure) -> Outcome:
        """Return the outcome for the parts that still exist after `abandon`."""
        for pod in self._pods.values():
            if pod.step is not BindingState.BOUND:
                pod.failure = failure
        return self._summary(Verdict.FAILED, failure)

    def outcome_of_breakdown(self, failure: PodFailure, *, last: bool) -> Outcome:
        """Return the outcome of an attempt that a defect has interrupted."""
        for pod in self._open():
            pod.failure = failure
        return self._outcome(last=last)

    # ---- the steps of an attempt --------------------------------------------------------------

    async def _check(self, pods: Sequence[PodProgress]) -> None:
        """Read each of `pods` and its node."""
        for pod in pods:
            try:
                await self._look_at(pod)
            except KubeError as error:
                pod.failure = PodFailure(
                    BindFailureReason.CHECK_FAILED, str(error), permanent=False
                )

    async def _look_at(self, pod: PodProgress) -> None:
        binding = pod.binding
        if pod.step is BindingState.UNCERTAIN:
            view = await self._port.read_pod(pod.namespace, binding.pod_name)
        else:
            view = await self._port.find_pod(pod.namespace, binding.pod_name, binding.pod_uid)
        pod.judge(view)
        if pod.is_open and not await self._port.node_exists(binding.selected_node):
            message = f"the node {binding.selected_node} does not exist"
            pod.failure = PodFailure(BindFailureReason.NODE_GONE, message, permanent=True)

    def _apply_refusals(self) -> None:
        """Apply refusals, but not to a transaction with bound pods: they stay."""
        stale = None if self.begun and self._needed else self._fence()
        # A pod that could not be read may be bound: then the others must follow it.
        is_unseen = any(pod.step is BindingState.UNSEEN for pod in self._pods.values())
        if stale is not None and is_unseen and self._needed:
            stale = replace(stale, permanent=False)
        for uid, pod in self._pods.items():
            failure = stale or self._refusals.get(uid)
            if failure and pod.step is BindingState.WAITING:
                pod.failure = failure

    async def _prepare(self, pod: PodProgress) -> None:
        pod.prepared = True
        pod.failure = await self._plugins.pre_bind(pod.contexts)

    async def _confirm(self, pod: PodProgress) -> None:
        pod.failure = await self._plugins.confirm(pod.contexts)

    async def _bind(self, pod: PodProgress) -> None:
        try:
            pod.failure = await self._plugins.before_bind(pod.contexts)
            if pod.failure is None:
                metadata = self._plugins.binding_metadata(pod.contexts)
                if isinstance(metadata, PodFailure):
                    pod.failure = metadata
                else:
                    await self._send_binding(pod, metadata)
        finally:
            self._plugins.end_turn(pod.contexts)
        if pod.step is BindingState.WAITING:
            await self._plugins.not_bound(pod.contexts)

    async def _send_binding(self, pod: PodProgress, metadata: BindingMetadata) -> None:
        for _ in range(_SENDINGS):
            version = pod.version
            pod.step, pod.failure, pod.in_doubt = BindingState.UNCERTAIN, None, True
            try:
                await self._port.bind(
                    pod.contexts.pod,
                    pod.binding.selected_node,
                    metadata,
                    version=version,
                    priority=self._priority,
                )
            except KubeError as error:
                pod.in_doubt = isinstance(error, OutcomeUnknownError | ServerError)
                await self._settle(pod, error)
                is_outdated = isinstance(error, ConflictError) and pod.version != version
                if not is_outdated or pod.step is not BindingState.WAITING or pod.is_lost:
                    return
            else:
                pod.succeed()
                return

    async def _settle(self, pod: PodProgress, error: KubeError) -> None:
        """Find the effect of a failed binding, which may have been executed."""
        pod.failure = PodFailure(BindFailureReason.BIND_FAILED, str(error), permanent=False)
        try:
            view = await self._port.read_pod(pod.namespace, pod.binding.pod_name)
        except KubeError:
            if isinstance(error, OutcomeUnknownError | ServerError):
                pod.failure = PodFailure(BindFailureReason.UNCERTAIN, str(error), permanent=False)
            else:
                pod.step = BindingState.WAITING
        else:
            pod.judge(view)

    async def _finish(self, pod: PodProgress) -> None:
        pod.failure = await self._plugins.post_bind(pod.contexts)
        pod.unfinished = pod.failure is not None and not pod.failure.permanent

    async def _roll_back(self, pods: Sequence[PodProgress]) -> None:
        """Roll back the unbound ones of `pods` in reverse order."""
        if any(pod.prepared for pod in pods):
            await self._port.left_writes_ended()
        for pod in reversed(pods):
            if pod.in_doubt and pod.step is BindingState.WAITING:
                await self._void_bindings(pod)
            if pod.prepared and pod.step is BindingState.WAITING:
                failure = await self._plugins.rollback(pod.contexts)
                pod.prepared = failure is not None
                pod.failure = pod.failure or failure

    async def _void_bindings(self, pod: PodProgress) -> None:
        """Let no binding of `pod` that is under way take effect, or find that one has."""
        failure = pod.failure
        uid = pod.binding.pod_uid
        try:
            view = await self._port.void_bindings(pod.namespace, pod.binding.pod_name, uid)
        except KubeError as error:
            text = f"bindings may be under way: {error}"
            pod.failure = PodFailure(BindFailureReason.UNCERTAIN, text, permanent=False)
        else:
            pod.in_doubt, pod.failure = False, None
            pod.judge(view)
            if pod.is_open:
                pod.failure = failure

    async def _for_each(
        self, pods: Iterable[PodProgress], action: Callable[[PodProgress], Awaitable[None]]
    ) -> None:
        chosen = list(pods)
        if len(chosen) <= 1:
            for pod in chosen:
                await action(pod)
            return

        async def act(pod: PodProgress) -> None:
            await action(pod)

        async with TaskGroup() as group:
            for pod in chosen:
                group.create_task(act(pod))

    # ---- the arithmetic of minBound -------------------------------------------------------------

    def _open(self) -> list[PodProgress]:
        return [pod for pod in self._pods.values() if pod.is_open]

    def _may_bind(self) -> bool:
        """Whether enough pods can be bound now, or a pod is bound already."""
        standing = sum(pod.failure is None for pod in self._pods.values())
        return self.begun or standing >= self._needed

    def _aborted(self) -> list[PodProgress]:
        """Return the pods that this attempt left unbound, in order."""
        return [pod for pod in self._pods.values() if pod.step is BindingState.WAITING]

    def _outcome(self, *, last: bool) -> Outcome:
        pods = self._pods.values()
        bound = sum(pod.step is BindingState.BOUND for pod in pods)
        failure = self._main_failure()
        if self._is_worth_a_retry(bound, last=last):
            return self._summary(Verdict.RETRY, failure)
        enough = bound >= max(self._needed, 1)
        return self._summary(Verdict.SUCCEEDED if enough else Verdict.FAILED, failure)

    def _is_worth_a_retry(self, bound: int, *, last: bool) -> bool:
        pods = self._pods.values()
        unknown = (BindingState.UNSEEN, BindingState.UNCERTAIN)
        if any(pod.step in unknown or pod.in_doubt for pod in pods):
            return True
        unbound = sum(pod.step is BindingState.WAITING and not pod.is_lost for pod in pods)
        reachable = bound + unbound >= self._needed
        if bound and reachable and bound < self._needed:
            return True
        unfinished = any(pod.step is BindingState.BOUND and pod.unfinished for pod in pods)
        return not last and (unfinished or (unbound > 0 and (reachable or bound > 0)))

    def _main_failure(self) -> PodFailure | None:
        """Return the failure to report for the transaction: a permanent one if there is one."""
        failures = [pod.failure for pod in self._pods.values() if pod.failure]
        return next((f for f in failures if f.permanent), failures[0] if failures else None)

    def _summary(self, verdict: Verdict, failure: PodFailure | None) -> Outcome:
        outcomes: dict[str, PodOutcome] = {}
        for uid, pod in self._pods.items():
            bound = pod.step is BindingState.BOUND
            cause = pod.failure
            if not bound and cause is None and failure is not None:
                cause = PodFailure(BindFailureReason.GANG_ABORTED, failure.message, permanent=False)
            outcomes[uid] = PodOutcome(pod.binding, bound, cause)
        whole = all(outcome.bound for outcome in outcomes.values())
        if verdict is Verdict.SUCCEEDED:
            reason: str = BoundReason.BOUND if whole else BoundReason.PARTLY_BOUND
        else:
            reason = failure.reason if failure else BindFailureReason.BIND_FAILED
        return Outcome(verdict, reason, failure.message if failure else "", outcomes, self.begun)
