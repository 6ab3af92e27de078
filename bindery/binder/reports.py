"""Events and metrics of outcomes.

Told by `run`. An outcome is an event at the PodGroup, and minor ones at the BindRequest and the
pods: the recorder keeps all of them to its rate, and drops minor ones first, so that a burst of
large gangs costs no more than a few events a second. Nothing here can fail or wait.
"""

from collections.abc import Callable, Sequence

from bindery.api.bindrequest import nodes_summary
from bindery.api.times import seconds
from bindery.binder.metrics import ATTEMPTS, BIND_REQUEST_SECONDS, PODS
from bindery.binder.outcome import Outcome, PodOutcome, Reason, Verdict
from bindery.kube.eventbook import ObjectReference
from bindery.kube.events import EventRecorder, reference_to
from bindery.kube.objects import BindRequest, PodGroupReference
from bindery.kube.resources import BIND_REQUESTS, POD_GROUPS
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
                duration = BIND_REQUEST_SECONDS.labels(outcome.verdict, request.spec.queue)
                duration.observe(max(now - created_s, 0.0))
        self._say(requests, outcome)

    def _say(self, requests: Sequence[BindRequest], outcome: Outcome) -> None:
        """Say it at the gang, at the request and at the pods; at most once where it is the same."""
        group = requests[0].spec.pod_group
        if group is not None:
            self._say_of_all(_gang(requests[0], group), outcome, is_minor=False)
        for request in requests:
            self._say_of_all(reference_to(BIND_REQUESTS, request), outcome, is_minor=True)
            for binding in request.spec.pods:
                pod = outcome.pods[binding.pod_uid]
                self._say_of_pod(request, pod, outcome, is_minor=group is not None)

    def _say_of_all(self, regarding: ObjectReference, outcome: Outcome, *, is_minor: bool) -> None:
        nodes = nodes_summary([pod.binding.selected_node for pod in outcome.pods.values()])
        count = f"{outcome.bound_count} of {len(outcome.pods)} pods"
        if outcome.verdict is Verdict.SUCCEEDED:
            text = f"bound {count} to {nodes}"
            self._events.normal(regarding, BOUND_EVENT, text, is_minor=is_minor)
        else:
            again = "; it is tried again" if outcome.verdict is Verdict.RETRY else ""
            text = f"{outcome.reason}: {outcome.message} ({count} are bound{again})"
            self._events.warning(regarding, FAILED_EVENT, text, is_minor=is_minor)

    def _say_of_pod(
        self, request: BindRequest, pod: PodOutcome, outcome: Outcome, *, is_minor: bool
    ) -> None:
        binding, is_over = pod.binding, outcome.verdict is not Verdict.RETRY
        namespace = request.metadata.namespace
        regarding = ObjectReference(
            POD_RESOURCE.api_version,
            POD_RESOURCE.kind,
            namespace,
            binding.pod_name,
            binding.pod_uid,
        )
        if pod.bound and is_over:
            text = f"bound to {binding.selected_node}"
            self._events.normal(regarding, BOUND_EVENT, text, is_minor=is_minor)
        elif not pod.bound and pod.failure is not None:
            is_its_own = pod.failure.reason != Reason.GANG_ABORTED
            if is_its_own or is_over:
                text = f"{pod.failure.reason}: {pod.failure.message}"
                self._events.warning(regarding, FAILED_EVENT, text, is_minor=is_minor)


def _gang(request: BindRequest, group: PodGroupReference) -> ObjectReference:
    namespace = request.metadata.namespace
    return ObjectReference(
        POD_GROUPS.api_version, POD_GROUPS.kind, namespace, group.name, group.uid
    )


def _outcome_of(pod: PodOutcome) -> str:
    if pod.bound:
        return Reason.BOUND
    return pod.failure.reason if pod.failure else Reason.GANG_ABORTED
