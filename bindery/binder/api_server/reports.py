"""Events and metrics of outcomes.

Called by `run.run`. An outcome becomes one event on the PodGroup, a minor event on each
BindRequest, and one event on each pod of the gang. Events on pods are made only when they are
written, after all other events, so that a burst of large gangs costs only a few events a second. No
method can fail or wait.
"""

from collections.abc import Callable, Iterator, Sequence

from bindery.api.bindrequest import BindFailureReason, few_names
from bindery.api.times import seconds
from bindery.binder.metrics import ATTEMPTS, BIND_REQUEST_SECONDS, PODS
from bindery.binder.outcome.outcome import BoundReason, Outcome, PodOutcome, Verdict
from bindery.binder.outcome.status import name_of_gang
from bindery.kube.events.book import ObjectReference, Occurrence, Severity
from bindery.kube.events.recorder import EventRecorder, reference, reference_to
from bindery.kube.objects.bindrequests import CommittedStatement, PodGroupReference
from bindery.kube.objects.resources import BIND_REQUESTS, POD_GROUPS
from bindery.kube.objects.resources import PODS as POD_RESOURCE

BOUND_EVENT = "Bound"
FAILED_EVENT = "BindingFailed"
_UNUSED_S = 86400.0


class Reports:
    """Implements `run.Reporter` over an event recorder and the process's metrics."""

    def __init__(self, events: EventRecorder, clock: Callable[[], float]) -> None:
        self._events, self._clock = events, clock
        self._used: dict[str, float] = {}
        """Queue -> time of the last change of its series."""
        self._dropped_at = clock()

    def attempt_failed(self, parts: Sequence[CommittedStatement], outcome: Outcome) -> None:
        """Count an attempt that will be retried; write the reason to the PodGroup or the pods."""
        ATTEMPTS.labels(outcome.verdict).inc()
        self._write_events(parts, outcome)

    def concluded(self, parts: Sequence[CommittedStatement], outcome: Outcome) -> None:
        """Count a final outcome; write it to the PodGroup or the pods."""
        ATTEMPTS.labels(outcome.verdict).inc()
        for pod in outcome.pods.values():
            PODS.labels(_outcome_of(pod)).inc()
        now = self._clock()
        for part in parts:
            created_s = seconds(part.metadata.creation_timestamp)
            if created_s is not None:
                self._used[part.spec.queue] = now
                duration = BIND_REQUEST_SECONDS.labels(outcome.verdict, part.spec.queue)
                duration.observe(max(now - created_s, 0.0))
        self._drop_unused(now)
        self._write_events(parts, outcome)

    def _drop_unused(self, now: float) -> None:
        """Drop the series of unused queues: the binder does not see deletions of queues."""
        if now - self._dropped_at < _UNUSED_S:
            return
        self._dropped_at = now
        for queue, used_at in list(self._used.items()):
            if now - used_at >= _UNUSED_S:
                BIND_REQUEST_SECONDS.remove_by_labels({"queue": queue})
                del self._used[queue]

    def _write_events(self, parts: Sequence[CommittedStatement], outcome: Outcome) -> None:
        """Write events to the gang, the requests and the pods."""
        group = parts[0].spec.pod_group
        if group is not None:
            self._write_event(_gang(parts[0], group), outcome, is_minor=False)
        for part in parts:
            gang = name_of_gang(group) if len(part.siblings) > 1 else ""
            regarding = reference_to(BIND_REQUESTS, part)
            self._write_event(regarding, outcome, is_minor=True, gang=gang)
        if group is not None:
            self._events.later(_of_pods(parts, outcome))
            return
        for occurrence in _of_pods(parts, outcome):
            if occurrence.severity is Severity.NORMAL:
                self._events.normal(occurrence.regarding, occurrence.reason, occurrence.message)
            else:
                self._events.warning(occurrence.regarding, occurrence.reason, occurrence.message)

    def _write_event(
        self, regarding: ObjectReference, outcome: Outcome, *, is_minor: bool, gang: str = ""
    ) -> None:
        """Write an event to an object; `gang`: the gang's name, if the object has several."""
        prefix = f"{gang}: " if gang else ""
        nodes = few_names([pod.binding.selected_node for pod in outcome.pods.values()])
        count = f"{outcome.bound_count} of {len(outcome.pods)} pods"
        if outcome.verdict is Verdict.SUCCEEDED:
            text = f"{prefix}bound {count} to {nodes}"
            self._events.normal(regarding, BOUND_EVENT, text, is_minor=is_minor)
        else:
            again = "; will be retried" if outcome.verdict is Verdict.RETRY else ""
            text = f"{prefix}{outcome.reason}: {outcome.message} ({count} are bound{again})"
            self._events.warning(regarding, FAILED_EVENT, text, is_minor=is_minor)


def _of_pods(parts: Sequence[CommittedStatement], outcome: Outcome) -> Iterator[Occurrence]:
    """Yield the events of an outcome on its pods."""
    is_over = outcome.verdict is not Verdict.RETRY
    for part in parts:
        for binding in part.spec.pods:
            pod = outcome.pods[binding.pod_uid]
            failure = pod.failure
            if pod.bound and is_over:
                text = f"bound to {binding.selected_node}"
                yield _of_pod(part, pod, Severity.NORMAL, BOUND_EVENT, text)
            elif pod.bound or failure is None:
                continue
            # While attempts continue, only pods with a failure of their own get an event.
            elif is_over or failure.reason != BindFailureReason.GANG_ABORTED:
                text = f"{failure.reason}: {failure.message}"
                yield _of_pod(part, pod, Severity.WARNING, FAILED_EVENT, text)


def _of_pod(
    statement: CommittedStatement, pod: PodOutcome, severity: Severity, reason: str, text: str
) -> Occurrence:
    binding, namespace = pod.binding, statement.metadata.namespace
    regarding = reference(POD_RESOURCE, namespace, binding.pod_name, binding.pod_uid)
    return Occurrence(regarding, severity, reason, text, is_minor=True)


def _gang(statement: CommittedStatement, group: PodGroupReference) -> ObjectReference:
    return reference(POD_GROUPS, statement.metadata.namespace, group.name, group.uid)


def _outcome_of(pod: PodOutcome) -> str:
    if pod.bound:
        return BoundReason.BOUND
    return pod.failure.reason if pod.failure else BindFailureReason.GANG_ABORTED
