"""Events and metrics of outcomes.

Told by `run`; one event an outcome on the PodGroup, and for pods without one an event each, which
the recorder limits. Nothing here can fail or wait.
"""

from collections.abc import Callable, Sequence

from bindery.api.bindrequest import nodes_summary
from bindery.api.times import seconds
from bindery.binder.metrics import ATTEMPTS, BIND_REQUEST_SECONDS, PODS
from bindery.binder.outcome import Outcome, PodOutcome, Reason, Verdict
from bindery.kube.eventbook import ObjectReference
from bindery.kube.events import EventRecorder
from bindery.kube.objects import BindRequest
from bindery.kube.resources import POD_GROUPS
from bindery.kube.resources import PODS as POD_RESOURCE

BOUND_EVENT = "Bound"
FAILED_EVENT = "BindingFailed"


class Reports:
    """Implements `run.Reporter` over an event recorder and the process's metrics."""

    def __init__(self, events: EventRecorder, clock: Callable[[], float]) -> None:
        self._events, self._clock = events, clock

    def attempt_failed(self, requests: Sequence[BindRequest], outcome: Outcome) -> None:
        """Count an attempt that will be repeated and say why on the PodGroup or the pods."""
        ATTEMPTS.labels(outcome.verdict).inc()
        self._say(requests, outcome)

    def concluded(self, requests: Sequence[BindRequest], outcome: Outcome) -> None:
        """Count a final outcome and say it on the PodGroup or the pods."""
        ATTEMPTS.labels(outcome.verdict).inc()
        for pod in outcome.pods.values():
            PODS.labels(_outcome_of(pod)).inc()
        now = self._clock()
        for request in requests:
            created_s = seconds(request.metadata.creation_timestamp)
            if created_s is not None:
                BIND_REQUEST_SECONDS.labels(outcome.verdict).observe(max(now - created_s, 0.0))
        self._say(requests, outcome)

    def _say(self, requests: Sequence[BindRequest], outcome: Outcome) -> None:
        group = requests[0].spec.pod_group
        if group is None:
            self._say_for_each_pod(requests, outcome)
            return
        regarding = ObjectReference(
            POD_GROUPS.api_version,
            POD_GROUPS.kind,
            requests[0].metadata.namespace,
            group.name,
            group.uid,
        )
        nodes = nodes_summary([pod.binding.selected_node for pod in outcome.pods.values()])
        count = f"{outcome.bound_count} of {len(outcome.pods)} pods"
        if outcome.verdict is Verdict.SUCCEEDED:
            self._events.normal(regarding, BOUND_EVENT, f"bound {count} to {nodes}")
        else:
            again = "; it is tried again" if outcome.verdict is Verdict.RETRY else ""
            text = f"{outcome.reason}: {outcome.message} ({count} are bound{again})"
            self._events.warning(regarding, FAILED_EVENT, text)

    def _say_for_each_pod(self, requests: Sequence[BindRequest], outcome: Outcome) -> None:
        for request in requests:
            for binding in request.spec.pods:
                pod = outcome.pods[binding.pod_uid]
                regarding = ObjectReference(
                    POD_RESOURCE.api_version,
                    POD_RESOURCE.kind,
                    request.metadata.namespace,
                    binding.pod_name,
                    binding.pod_uid,
                )
                if pod.bound and outcome.verdict is not Verdict.RETRY:
                    text = f"bound to {binding.selected_node}"
                    self._events.normal(regarding, BOUND_EVENT, text)
                elif not pod.bound and pod.failure is not None:
                    text = f"{pod.failure.reason}: {pod.failure.message}"
                    self._events.warning(regarding, FAILED_EVENT, text)


def _outcome_of(pod: PodOutcome) -> str:
    if pod.bound:
        return Reason.BOUND
    return pod.failure.reason if pod.failure else Reason.GANG_ABORTED
