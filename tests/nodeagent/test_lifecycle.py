from functools import partial
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api import names
from bindery.api.times import timestamp
from bindery.kube.objects.watched import Condition, Meta
from bindery.nodeagent.lifecycle import (
    EXIT_CODE_ANNOTATION,
    EXIT_KILLED,
    EXIT_TERMINATED,
    STEP_LABELS,
    STOP_SECONDS_ANNOTATION,
    Expire,
    Finish,
    MalformedAnnotation,
    ReadinessChange,
    Remove,
    Rest,
    Start,
    Step,
    Stop,
    Wait,
    decide,
    malformed_annotations,
)
from bindery.nodeagent.pod_objects import AgentPod, AgentPodSpec, AgentPodStatus, ReadinessGate

NOW_S = 1_800_000_000.0


def pod(
    phase: str = "Pending",
    *,
    started_s: float | None = None,
    run: str | None = None,
    stop: str | None = None,
    killed_s: float | None = None,
    grace_s: int | None = None,
    finalizers: tuple[str, ...] = (),
    code: str | None = None,
    deadline_s: int | None = None,
) -> AgentPod:
    annotations = {
        names.HOLLOW_RUN_SECONDS_ANNOTATION: run,
        STOP_SECONDS_ANNOTATION: stop,
        EXIT_CODE_ANNOTATION: code,
    }
    return AgentPod(
        metadata=Meta(
            name="a",
            uid="1",
            annotations={key: text for key, text in annotations.items() if text is not None},
            deletion_timestamp=None if killed_s is None else timestamp(killed_s),
            deletion_grace_period_seconds=grace_s,
            finalizers=list(finalizers),
        ),
        spec=AgentPodSpec(node_name="hollow-0", active_deadline_seconds=deadline_s),
        status=AgentPodStatus(
            phase=phase, start_time=None if started_s is None else timestamp(started_s)
        ),
    )


def test_a_newly_bound_pod_starts() -> None:
    assert decide(pod(), NOW_S) == Start()


def test_a_running_pod_without_the_annotation_keeps_running() -> None:
    assert decide(pod("Running", started_s=NOW_S - 1e6), NOW_S) == Rest()


def test_a_running_pod_ends_after_its_run_seconds() -> None:
    running = pod("Running", started_s=NOW_S - 3, run="10")

    assert decide(running, NOW_S) == Wait(NOW_S + 7)
    assert decide(running, NOW_S + 7) == Finish(0)


def test_the_run_time_counts_from_the_pods_start_across_restarts_of_the_agent() -> None:
    assert decide(pod("Running", started_s=NOW_S - 3600, run="10"), NOW_S) == Finish(0)


def test_a_running_pod_ends_with_the_exit_code_of_its_annotation() -> None:
    running = pod("Running", started_s=NOW_S - 10, run="10", code="3")

    assert decide(running, NOW_S) == Finish(3)


@pytest.mark.parametrize("text", ["", "256", "-1", "one", "1.0", "\u0663"])
def test_a_malformed_exit_code_is_reported_and_ignored(text: str) -> None:
    running = pod("Running", started_s=NOW_S - 10, run="10", code=text)

    assert decide(running, NOW_S) == Finish(0)
    (problem,) = malformed_annotations(running)
    assert str(problem) == f"{EXIT_CODE_ANNOTATION}: {text!r} is not an exit code, 0 to 255"


def test_a_running_pod_is_ready_while_all_its_readiness_gates_are_true() -> None:
    gates = [ReadinessGate(condition_type="a"), ReadinessGate(condition_type="b")]

    def gated(**conditions: str) -> AgentPod:
        listed = [Condition(type=kind, status=status) for kind, status in conditions.items()]
        status = AgentPodStatus(phase="Running", start_time=timestamp(NOW_S), conditions=listed)
        return AgentPod(spec=AgentPodSpec(readiness_gates=gates), status=status)

    assert decide(gated(Ready="False", a="True"), NOW_S) == Rest()
    assert decide(gated(Ready="False", a="True", b="True"), NOW_S) == ReadinessChange()
    assert decide(gated(Ready="True", a="True", b="True"), NOW_S) == Rest()
    assert decide(gated(Ready="True", a="False", b="True"), NOW_S) == ReadinessChange()


def test_a_running_pod_fails_at_its_deadline() -> None:
    running = pod("Running", started_s=NOW_S - 3, run="100", deadline_s=10)

    assert decide(running, NOW_S) == Wait(NOW_S + 7)
    assert decide(running, NOW_S + 7) == Expire()


def test_a_pod_that_ends_before_its_deadline_does_not_fail() -> None:
    running = pod("Running", started_s=NOW_S - 60, run="5", deadline_s=10)

    assert decide(running, NOW_S) == Finish(0)


def test_a_stopped_pod_ends_with_its_annotated_exit_code_unless_killed() -> None:
    held = ("example.com/held",)
    stopped = pod("Running", killed_s=NOW_S + 9, grace_s=9, code="0", finalizers=held)
    killed = pod("Running", killed_s=NOW_S, grace_s=9, code="0", stop="60", finalizers=held)

    assert decide(stopped, NOW_S) == Stop(0)
    assert decide(killed, NOW_S) == Stop(EXIT_KILLED)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminated_pod_needs_no_step(phase: str) -> None:
    assert decide(pod(phase, started_s=NOW_S, run="0"), NOW_S + 9) == Rest()


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e300", "5s"])
def test_a_malformed_annotation_is_reported_and_the_pod_keeps_running(text: str) -> None:
    running = pod("Running", started_s=NOW_S - 100, run=text)

    assert decide(running, NOW_S) == Rest()
    assert malformed_annotations(running) == [
        MalformedAnnotation(names.HOLLOW_RUN_SECONDS_ANNOTATION, text)
    ]


def test_a_deleted_pod_stops_at_once_without_the_annotation() -> None:
    deleted = pod("Running", started_s=NOW_S, killed_s=NOW_S + 30, grace_s=30)

    assert decide(deleted, NOW_S) == Remove()


def test_a_deleted_pod_stops_after_its_annotated_seconds() -> None:
    deleted = pod("Running", started_s=NOW_S, killed_s=NOW_S + 30, grace_s=30, stop="5")

    assert decide(deleted, NOW_S) == Wait(NOW_S + 5)
    assert decide(deleted, NOW_S + 5) == Remove()


def test_a_pod_that_outlasts_its_grace_period_is_killed() -> None:
    deleted = pod("Running", started_s=NOW_S, killed_s=NOW_S + 30, grace_s=30, stop="600")

    assert decide(deleted, NOW_S + 29) == Wait(NOW_S + 30)
    assert decide(deleted, NOW_S + 30) == Remove()


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_deleted_pod_that_does_not_run_is_removed_at_once(phase: str) -> None:
    deleted = pod(phase, killed_s=NOW_S + 30, grace_s=30, stop="20")

    assert decide(deleted, NOW_S) == Remove()


@pytest.mark.parametrize(("stop", "code"), [(None, EXIT_TERMINATED), ("600", EXIT_KILLED)])
def test_a_deleted_pod_with_a_finalizer_gets_its_final_status_first(
    stop: str | None, code: int
) -> None:
    deleted = partial(
        pod, started_s=NOW_S - 60, killed_s=NOW_S, grace_s=30, stop=stop, finalizers=("a/b",)
    )

    assert decide(deleted("Running"), NOW_S) == Stop(code)
    assert decide(deleted("Failed"), NOW_S) == Remove()


def test_a_removed_pod_with_a_finalizer_is_not_removed_again() -> None:
    kept = pod("Failed", killed_s=NOW_S, grace_s=0, finalizers=("a/b",))

    assert decide(kept, NOW_S) == Rest()


@given(st.floats(min_value=0, max_value=1e6), st.integers(min_value=0, max_value=10**6))
def test_a_wait_never_exceeds_the_grace_period(stop_s: float, grace_s: int) -> None:
    deleted = pod(
        "Running", started_s=NOW_S, killed_s=NOW_S + grace_s, grace_s=grace_s, stop=str(stop_s)
    )

    decision = decide(deleted, NOW_S)

    if isinstance(decision, Wait):
        assert NOW_S < decision.until_s <= NOW_S + grace_s
        assert decide(deleted, decision.until_s) == Remove()
    else:
        assert decision == Remove()


def test_the_labels_of_steps_in_metrics_do_not_depend_on_the_names_of_classes() -> None:
    labels = ["refuse", "record", "start", "finish", "expire", "turn", "stop", "remove"]

    assert list(STEP_LABELS) == list(get_args(Step))
    assert list(STEP_LABELS.values()) == labels
