"""Phase, conditions and container statuses of pods, as tables."""

from dataclasses import replace

import pytest

from bindery.nodecore.podsync.facts import PodRules, ProbeVerdict, ProbeVerdicts, RuntimePod
from bindery.nodecore.podsync.phase import Conditions, phase
from bindery.nodecore.podsync.statuses import (
    ContainerReport,
    Reports,
    Running,
    StartFailure,
    Terminated,
    Waiting,
    app_reports,
    init_reports,
    with_readiness,
)
from tests.nodecore.podsync.pods import rules, seen


def reports(
    pod: PodRules, runtime: RuntimePod, verdicts: ProbeVerdicts | None = None
) -> tuple[list[ContainerReport], list[ContainerReport]]:
    """Return the reports of app and init containers that were not reported before."""
    apps, inits = app_reports(pod, runtime, (), {}), init_reports(pod, runtime, (), {})
    return with_readiness(pod, apps, inits, verdicts or ProbeVerdicts())


def phase_of(pod: PodRules, runtime: RuntimePod, *, is_terminal: bool = False) -> str:
    apps, inits = reports(pod, runtime)
    started = any(runtime.container(one.name) for one in pod.containers)
    return phase(pod, [*inits, *apps], is_terminal=is_terminal, was_initialized=started)


@pytest.mark.parametrize(
    ("policy", "inits", "apps", "runtime", "wanted"),
    [
        ("Always", "", "a", "", "Pending"),
        ("Always", "", "ab", "a:running", "Pending"),
        ("Always", "", "ab", "a:running b:running", "Running"),
        ("Always", "", "ab", "a:running b:1", "Running"),
        ("Always", "", "a", "a:0", "Running"),
        ("Always", "", "a", "a:1", "Running"),
        ("OnFailure", "", "a", "a:0", "Succeeded"),
        ("OnFailure", "", "a", "a:1", "Running"),
        ("Never", "", "a", "a:0", "Succeeded"),
        ("Never", "", "a", "a:1", "Failed"),
        ("Never", "", "ab", "a:0 b:1", "Failed"),
        ("Never", "", "ab", "a:running b:1", "Running"),
        ("Always", "x", "a", "x:running", "Pending"),
        ("Always", "x", "a", "x:0", "Pending"),
        ("Always", "x", "a", "x:1", "Pending"),
        ("Never", "x", "a", "x:1", "Failed"),
        ("Never", "x", "a", "a:running x:0", "Running"),
        ("Never", "S", "a", "S:running", "Pending"),
        ("Never", "S", "a", "a:running S:running", "Running"),
        ("Never", "S", "a", "a:0 S:running", "Running"),
        ("Never", "S", "a", "a:0 S:0", "Succeeded"),
        ("Always", "S", "a", "a:running S:1", "Running"),
    ],
)
def test_the_phase(policy: str, inits: str, apps: str, runtime: str, wanted: str) -> None:
    assert phase_of(rules(policy, inits, apps), seen(runtime)) == wanted


@pytest.mark.parametrize(("runtime", "wanted"), [("a:0", "Succeeded"), ("a:1", "Failed")])
def test_the_phase_of_a_pod_that_is_ended_from_outside(runtime: str, wanted: str) -> None:
    assert phase_of(rules("Always"), seen(runtime), is_terminal=True) == wanted


@pytest.mark.parametrize(
    ("inits", "runtime", "wanted"),
    [
        ("", "", {"Initialized": "True", "Ready": "False:ContainersNotReady"}),
        ("", "a:running", {"Ready": "True", "ContainersReady": "True"}),
        ("", "a:0", {"Ready": "False:PodCompleted", "Initialized": "True:PodCompleted"}),
        ("", "a:1", {"Ready": "False:PodFailed", "Initialized": "True"}),
        ("x", "x:running", {"Initialized": "False:ContainersNotInitialized"}),
        ("x", "x:1", {"Initialized": "False:ContainersNotInitialized", "Ready": "False:PodFailed"}),
        ("x", "x:0", {"Initialized": "True", "Ready": "False:ContainersNotReady"}),
        ("x", "a:running", {"Initialized": "True", "Ready": "True"}),
    ],
)
def test_the_conditions(inits: str, runtime: str, wanted: dict[str, str]) -> None:
    pod, runs = rules("Never", inits), seen(runtime)
    apps, firsts = reports(pod, runs)

    found = {
        one.type: f"{one.status}:{one.reason}".rstrip(":")
        for one in Conditions(pod, runs, phase_of(pod, runs), apps, firsts).all()
    }

    assert {kind: found[kind] for kind in wanted} == wanted
    assert found["PodReadyToStartContainers"] == "True"


def test_messages_name_the_containers_that_are_not_ready() -> None:
    pod, runs = rules(apps="ab"), seen("a:running")
    apps, firsts = reports(pod, runs)

    (ready,) = [
        one
        for one in Conditions(pod, runs, "Pending", apps, firsts).all()
        if one.type == "ContainersReady"
    ]

    assert ready.message == "containers with unready status: [b]"


@pytest.mark.parametrize(
    ("gates", "reason"),
    [({}, "ReadinessGatesNotReady"), ({"own": "False"}, "ReadinessGatesNotReady"),
     ({"own": "True"}, "")],
)  # fmt: skip
def test_readiness_gates(gates: dict[str, str], reason: str) -> None:
    pod, runs = replace(rules(), readiness_gates=("own",)), seen("a:running")
    apps, firsts = reports(pod, runs)

    (ready,) = [
        one
        for one in Conditions(pod, runs, "Running", apps, firsts, gates).all()
        if one.type == "Ready"
    ]

    assert ready.reason == reason


def report(name: str, state: Waiting | Running | Terminated, **fields: object) -> ContainerReport:
    return replace(ContainerReport(name, "", state), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "runtime", "wanted"),
    [
        ((), "", "Waiting ContainerCreating 0"),
        ((), "a:created", "Waiting  0"),
        ((), "a:running", "Running 0"),
        ((), "a:3", "Terminated 3 0"),
        ((report("a", Running(1.0)),), "", "Waiting ContainerCreating 1 after 137"),
        ((report("a", Terminated(5)),), "", "Terminated 5 0"),
        ((report("a", Running(1.0)),), "a:unknown", "Terminated 137 1"),
        ((), "a:unknown", "Waiting  0"),
        ((), "a:running a:4", "Running 0 after 4"),
    ],
)
def test_the_status_of_a_container(before: Reports, runtime: str, wanted: str) -> None:
    (found,) = app_reports(rules(), seen(runtime), before, {})

    state = found.state
    shown = type(state).__name__
    if isinstance(state, Waiting):
        shown += f" {state.reason}"
    elif isinstance(state, Terminated):
        shown += f" {state.exit_code}"
    shown += f" {found.restart_count}"
    shown += f" after {found.last.exit_code}" if found.last is not None else ""
    assert shown == wanted


def test_a_container_that_cannot_be_started_again_waits_for_the_reason() -> None:
    failure = StartFailure("CrashLoopBackOff", "back-off 10s")

    (found,) = app_reports(rules(), seen("a:1"), (), {"a": failure})

    assert found.state == Waiting("CrashLoopBackOff", "back-off 10s")
    assert found.last is not None
    assert found.last.exit_code == 1


def test_an_init_container_that_was_removed_after_its_work_has_completed() -> None:
    (found,) = init_reports(rules(inits="x"), seen("a:running"), (), {})

    assert isinstance(found.state, Terminated)
    assert (found.state.exit_code, found.state.reason) == (0, "Completed")


@pytest.mark.parametrize(
    ("verdicts", "started", "ready"),
    [
        (ProbeVerdicts(), False, False),
        (ProbeVerdicts(startup={"fake://a": ProbeVerdict.SUCCESS}), True, False),
        (
            ProbeVerdicts(
                startup={"fake://a": ProbeVerdict.SUCCESS},
                readiness={"fake://a": ProbeVerdict.SUCCESS},
            ),
            True,
            True,
        ),
        (
            ProbeVerdicts(
                startup={"fake://a": ProbeVerdict.UNKNOWN},
                readiness={"fake://a": ProbeVerdict.SUCCESS},
            ),
            False,
            False,
        ),
    ],
)
def test_readiness_follows_the_probes(verdicts: ProbeVerdicts, started: bool, ready: bool) -> None:
    own = replace(rules().containers[0], has_startup_probe=True, has_readiness_probe=True)

    (found,), _ = reports(PodRules((own,)), seen("a:running"), verdicts)

    assert (found.started, found.ready) == (started, ready)
