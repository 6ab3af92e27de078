"""The progress of one pod in a transaction.

Owned by `transaction`, which alone changes it; `judge` is the only function that interprets the API
server's answers about a pod.
"""

from dataclasses import dataclass
from enum import Enum, auto

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.outcome import PodFailure
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.chain import PodContexts
from bindery.kube.objects.bindrequests import PodBinding


class BindingState(Enum):
    """The known state of a pod's binding."""

    UNSEEN = auto()  # not read yet: a process that died may have bound the pod
    WAITING = auto()  # not bound, and no binding in progress
    UNCERTAIN = auto()  # a binding was sent and has no answer
    BOUND = auto()


@dataclass
class PodProgress:
    """The known state of one pod, and its progress."""

    binding: PodBinding
    namespace: str
    contexts: PodContexts
    step: BindingState = BindingState.UNSEEN
    prepared: bool = False
    """Whether a plugin may have left changes that a rollback must remove."""
    unfinished: bool = False
    """Whether the pod is bound, but PostBind has not succeeded yet."""
    version: str = ""
    """The version of the pod that was read last."""
    in_doubt: bool = False
    """Whether a binding of the pod may be under way, from this process or an earlier one."""
    failure: PodFailure | None = None

    @property
    def is_open(self) -> bool:
        """Whether the pod can proceed in this attempt."""
        return self.step is not BindingState.BOUND and self.failure is None

    @property
    def is_lost(self) -> bool:
        """Whether this transaction will never bind the pod."""
        return (
            self.step is BindingState.WAITING
            and self.failure is not None
            and self.failure.permanent
        )

    def judge(self, view: PodView | None) -> None:
        """Update the state from the pod's current object."""
        binding = self.binding
        self.version = view.version if view is not None else ""
        if view is None:
            self._lose(BindFailureReason.POD_GONE, "the pod does not exist")
        elif view.uid != binding.pod_uid:
            self._lose(
                BindFailureReason.POD_REPLACED, f"another pod has this name now ({view.uid})"
            )
        elif view.node == binding.selected_node:
            self.succeed()
        elif view.node:
            self._lose(BindFailureReason.BOUND_ELSEWHERE, f"the pod is bound to {view.node}")
        elif view.ending:
            self._lose(BindFailureReason.POD_GONE, "the pod is being deleted or has ended")
        else:
            self.step = BindingState.WAITING

    def succeed(self) -> None:
        """Record that the pod is bound."""
        self.step, self.failure = BindingState.BOUND, None
        self.prepared = self.in_doubt = False

    def _lose(self, reason: BindFailureReason, message: str) -> None:
        self.step, self.in_doubt = BindingState.WAITING, False
        self.failure = PodFailure(reason, message, permanent=True)
