"""What a kubelet does next with the containers of a pod, as tables."""

from dataclasses import replace

import pytest

from bindery.nodecore.podsync.actions import KillReason, needs_sandbox, next_actions
from bindery.nodecore.podsync.facts import (
    NO_VERDICTS,
    ContainerRules,
    ExitCodeRule,
    PodRules,
    ProbeVerdict,
    ProbeVerdicts,
    RuntimePod,
    RuntimeSandbox,
)
from tests.nodecore.podsync.pods import SANDBOX, rules, seen

STARTS = [
    # policy, init containers, app containers, the runtime -> init containers and others to start
    ("Always", "", "ab", "", "", "ab"),
    ("Always", "", "ab", "a:running", "", "b"),
    ("Always", "", "ab", "a:running b:0", "", "b"),
    ("OnFailure", "", "ab", "a:running b:0", "", ""),
    ("OnFailure", "", "ab", "a:running b:1", "", "b"),
    ("Never", "", "ab", "a:running b:1", "", ""),
    ("Never", "", "ab", "a:running b:created", "", "b"),
    ("Always", "xy", "a", "", "x", ""),
    ("Always", "xy", "a", "x:running", "", ""),
    ("Always", "xy", "a", "x:0", "y", ""),
    ("Always", "xy", "a", "x:1", "x", ""),
    ("Always", "xy", "a", "y:running x:0", "", ""),
    ("Always", "xy", "a", "y:0 x:0", "", "a"),
    ("Always", "xy", "a", "y:0", "", "a"),
    ("Always", "xy", "a", "x:created", "x", ""),
    ("Always", "xS", "a", "x:0", "S", ""),
    ("Always", "Sx", "a", "", "S", ""),
    ("Always", "Sx", "a", "S:running", "x", ""),
    ("Always", "Sx", "a", "x:running S:running", "", ""),
    ("Always", "Sx", "a", "x:running S:1", "S", ""),
    ("Always", "Sx", "a", "x:0 S:running", "", "a"),
    ("Always", "Sx", "a", "a:running x:0 S:0", "S", ""),
    ("Always", "Sx", "a", "a:running S:running", "", ""),
    ("Always", "Sx", "a", "a:running", "S", ""),
    ("Always", "ST", "a", "", "S", ""),
    ("Always", "ST", "a", "S:running", "T", ""),
    ("Always", "ST", "a", "T:running S:running", "", "a"),
    ("Always", "ST", "a", "a:running T:0 S:0", "ST", ""),
]


@pytest.mark.parametrize(("policy", "inits", "apps", "runtime", "first", "others"), STARTS)
def test_containers_to_start(
    policy: str, inits: str, apps: str, runtime: str, first: str, others: str
) -> None:
    found = next_actions(rules(policy, inits, apps), seen(runtime), NO_VERDICTS)

    assert ("".join(found.start_init), "".join(found.start)) == (first, others)
    assert not found.kill_pod


@pytest.mark.parametrize(
    ("policy", "inits", "runtime"),
    [
        ("Never", "", "a:0"),
        ("Never", "", "a:7"),
        ("OnFailure", "", "a:0"),
        ("Never", "x", "x:1"),
        ("Never", "x", "x:unknown"),
        ("Never", "S", "a:0 S:running"),
    ],
)
def test_a_pod_that_has_done_its_work_is_ended(policy: str, inits: str, runtime: str) -> None:
    found = next_actions(rules(policy, inits), seen(runtime), NO_VERDICTS)

    assert found.kill_pod
    assert (found.start_init, found.start) == ((), ())


OLD = RuntimeSandbox("old", is_ready=False, attempt=2)


@pytest.mark.parametrize(
    ("pod", "sandboxes", "wanted"),
    [
        (rules(), (), (True, 0)),
        (rules(), (SANDBOX,), (False, 0)),
        (rules(), (OLD,), (True, 3)),
        (rules(), (SANDBOX, replace(SANDBOX, id="second")), (True, 1)),
        (rules(), (replace(SANDBOX, addresses=()),), (True, 1)),
        (rules(host_network=True), (SANDBOX,), (True, 1)),
        (rules(host_network=True), (replace(SANDBOX, host_network=True),), (False, 0)),
    ],
)
def test_when_a_new_sandbox_is_needed(
    pod: PodRules, sandboxes: tuple[RuntimeSandbox, ...], wanted: tuple[bool, int]
) -> None:
    assert needs_sandbox(pod, RuntimePod(sandboxes))[:2] == wanted


@pytest.mark.parametrize(
    ("policy", "inits", "runtime", "creates", "first", "others"),
    [
        ("Always", "", "", True, "", "ab"),
        ("Never", "", "", True, "", "ab"),
        ("Never", "", "a:0", False, "", ""),
        ("Always", "", "a:0 b:0", True, "", "ab"),
        ("OnFailure", "", "a:0 b:1", True, "", "b"),
        ("OnFailure", "", "a:0 b:0", False, "", ""),
        ("Always", "x", "a:0 b:0 x:0", True, "x", ""),
    ],
)
def test_a_lost_sandbox(
    policy: str, inits: str, runtime: str, creates: bool, first: str, others: str
) -> None:
    """All that still runs is ended, and the pod begins again if its policy allows it."""
    found = next_actions(rules(policy, inits, "ab"), seen(runtime, OLD), NO_VERDICTS)

    assert found.kill_pod
    assert found.create_sandbox == creates
    assert ("".join(found.start_init), "".join(found.start)) == (first, others)


@pytest.mark.parametrize(
    ("policy", "verdicts", "reason", "restarts"),
    [
        (
            "Always",
            ProbeVerdicts(liveness={"fake://a": ProbeVerdict.FAILURE}),
            "LivenessProbe",
            True,
        ),
        (
            "Never",
            ProbeVerdicts(liveness={"fake://a": ProbeVerdict.FAILURE}),
            "LivenessProbe",
            False,
        ),
        ("Always", ProbeVerdicts(startup={"fake://a": ProbeVerdict.FAILURE}), "StartupProbe", True),
    ],
)
def test_a_container_that_fails_its_probe_is_ended(
    policy: str, verdicts: ProbeVerdicts, reason: str, restarts: bool
) -> None:
    found = next_actions(rules(policy), seen("a:running"), verdicts)

    assert [one.reason for one in found.kill] == [KillReason(reason)]
    assert found.start == (("a",) if restarts else ())
    assert found.kill_pod == (not restarts)


def test_a_sidecar_that_fails_its_liveness_probe_is_started_again() -> None:
    verdicts = ProbeVerdicts(liveness={"fake://S": ProbeVerdict.FAILURE})

    found = next_actions(rules(inits="S"), seen("a:running S:running"), verdicts)

    assert found.start_init == ("S",)
    assert [one.container.name for one in found.kill] == ["S"]


@pytest.mark.parametrize(
    ("verdict", "starts"),
    [
        (None, ""),
        (ProbeVerdict.UNKNOWN, ""),
        (ProbeVerdict.SUCCESS, "x"),
        (ProbeVerdict.FAILURE, "S"),
    ],
)
def test_what_follows_a_sidecar_waits_for_its_startup_probe(
    verdict: ProbeVerdict | None, starts: str
) -> None:
    pod = rules(inits="Sx")
    sidecar = replace(pod.init_containers[0], has_startup_probe=True)
    pod = replace(pod, init_containers=(sidecar, pod.init_containers[1]))
    verdicts = ProbeVerdicts() if verdict is None else ProbeVerdicts(startup={"fake://S": verdict})

    found = next_actions(pod, seen("S:running"), verdicts)

    assert found.start_init == tuple(starts)


def test_a_container_of_unknown_state_is_ended_before_it_starts_again() -> None:
    found = next_actions(rules(), seen("a:unknown"), NO_VERDICTS)

    assert [one.container.name for one in found.kill] == ["a"]
    assert found.start == ("a",)


def test_a_container_with_another_image_is_replaced_whatever_its_policy() -> None:
    pod = PodRules((ContainerRules("a", definition="new"),), restart_policy="Never")
    before = seen("a:running")
    before = replace(before, containers=(replace(before.containers[0], definition="old"),))

    found = next_actions(pod, before, NO_VERDICTS)

    assert found.start == ("a",)
    assert [one.message for one in found.kill] == [
        "Container a definition changed, will be restarted"
    ]


@pytest.mark.parametrize(("code", "restarts"), [(42, True), (43, False), (0, False)])
def test_a_rule_about_exit_codes_comes_before_the_policy(code: int, restarts: bool) -> None:
    rule = ExitCodeRule("Restart", "In", (42,))
    own = ContainerRules("a", restart_policy="Never", exit_code_rules=(rule,))
    pod = PodRules((own,), restart_policy="Never")

    found = next_actions(pod, seen(f"a:{code}"), NO_VERDICTS)

    assert found.start == (("a",) if restarts else ())


def test_no_container_of_a_deleted_pod_is_started() -> None:
    found = next_actions(rules(is_deleted=True), seen("a:1"), NO_VERDICTS)

    assert found.start == ()
