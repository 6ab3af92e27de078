"""The events of an outcome at the gang, the request and the pods."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.api_server.reports import Reports
from bindery.binder.metrics import BIND_REQUEST_SECONDS
from bindery.binder.outcome.outcome import Outcome, PodFailure, PodOutcome, Verdict
from bindery.kube.events.book import ObjectReference, Occurrence
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    PodGroupReference,
    StatementSpec,
)
from bindery.kube.objects.watched import Meta


@dataclass
class Recorder:
    """Keeps events as (type, kind, name, reason, message, whether minor)."""

    events: list[tuple[str, str, str, str, str, bool]] = field(default_factory=list)

    def normal(
        self, regarding: ObjectReference, reason: str, message: str, *, is_minor: bool = False
    ) -> None:
        self.events.append(("Normal", regarding.kind, regarding.name, reason, message, is_minor))

    def warning(
        self, regarding: ObjectReference, reason: str, message: str, *, is_minor: bool = False
    ) -> None:
        self.events.append(("Warning", regarding.kind, regarding.name, reason, message, is_minor))

    def later(self, occurrences: Iterator[Occurrence]) -> None:
        for each in occurrences:
            where = each.regarding
            self.events.append(
                (each.severity, where.kind, where.name, each.reason, each.message, each.is_minor)
            )


BINDINGS = [
    PodBinding(pod_name=f"g-{n}", pod_uid=f"u{n}", selected_node=f"node-{n}") for n in range(2)
]
TEMPORARY = PodFailure("PluginFailed", "not now", permanent=False)
ABORTED = PodFailure(BindFailureReason.GANG_ABORTED, "not now", permanent=False)


def request(group: str) -> CommittedStatement:
    reference = PodGroupReference(name=group, uid="ug") if group else None
    return CommittedStatement(
        metadata=Meta(name="request", namespace="team", uid="ur"),
        spec=StatementSpec(pods=BINDINGS, id="s", pod_group=reference),
    )


def outcome(verdict: Verdict, *failures: PodFailure | None) -> Outcome:
    pods = {
        binding.pod_uid: PodOutcome(binding, failure is None, failure)
        for binding, failure in zip(BINDINGS, failures, strict=True)
    }
    failure = next((each for each in failures if each is not None), None)
    reason, message = (failure.reason, failure.message) if failure else ("Bound", "")
    return Outcome(verdict, reason, message, pods, begun=failure is None)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def reports(recorder: Recorder) -> Reports:
    return Reports(recorder, lambda: 0.0)  # type: ignore[arg-type]  # it records, and that is all


def test_a_bound_gang_has_an_event_and_its_request_and_pods_minor_events(
    reports: Reports, recorder: Recorder
) -> None:
    reports.concluded([request("g")], outcome(Verdict.SUCCEEDED, None, None))

    text = "bound 2 of 2 pods to node-0,node-1"
    assert recorder.events == [
        ("Normal", "PodGroup", "g", "Bound", text, False),
        ("Normal", "BindRequest", "request", "Bound", text, True),
        ("Normal", "Pod", "g-0", "Bound", "bound to node-0", True),
        ("Normal", "Pod", "g-1", "Bound", "bound to node-1", True),
    ]


def test_a_repeated_attempt_is_reported_only_at_the_pods_that_failed(
    reports: Reports, recorder: Recorder
) -> None:
    reports.attempt_failed([request("g")], outcome(Verdict.RETRY, TEMPORARY, ABORTED))

    told = [(kind, name) for _, kind, name, *_ in recorder.events]
    assert told == [("PodGroup", "g"), ("BindRequest", "request"), ("Pod", "g-0")]
    assert all(severity == "Warning" for severity, *_ in recorder.events)


def test_a_failed_gang_is_reported_at_every_pod(reports: Reports, recorder: Recorder) -> None:
    reports.concluded([request("g")], outcome(Verdict.FAILED, TEMPORARY, ABORTED))

    assert [each[2:5] for each in recorder.events[2:]] == [
        ("g-0", "BindingFailed", "PluginFailed: not now"),
        ("g-1", "BindingFailed", "GangAborted: not now"),
    ]


def test_events_of_independent_pods_are_not_minor(reports: Reports, recorder: Recorder) -> None:
    reports.concluded([request("")], outcome(Verdict.SUCCEEDED, None, TEMPORARY))

    assert [(name, is_minor) for _, _, name, _, _, is_minor in recorder.events] == [
        ("request", True),
        ("g-0", False),
        ("g-1", False),
    ]


def test_the_series_of_an_unused_queue_are_dropped(recorder: Recorder) -> None:
    clock = [0.0]
    reports = Reports(recorder, lambda: clock[0])  # type: ignore[arg-type]  # it records, and that is all

    def conclude(queue: str) -> None:
        part = request("g")
        part = replace(
            part,
            metadata=replace(part.metadata, creation_timestamp="1970-01-01T00:00:00Z"),
            spec=replace(part.spec, queue=queue),
        )
        reports.concluded([part], outcome(Verdict.SUCCEEDED, None, None))

    def queues() -> set[str]:
        (family,) = BIND_REQUEST_SECONDS.collect()
        return {sample.labels["queue"] for sample in family.samples} & {"old", "new"}

    conclude("old")
    clock[0] = 80_000.0
    conclude("new")
    assert queues() == {"old", "new"}
    clock[0] = 90_000.0
    conclude("new")
    assert queues() == {"new"}
