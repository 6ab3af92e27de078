"""Restarts, probes, grace periods and references to variables, as tables."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.podsync.actions import KillReason
from bindery.nodecore.podsync.ending import ends_after, grace_s
from bindery.nodecore.podsync.expansion import expand, references
from bindery.nodecore.podsync.facts import ProbeVerdict
from bindery.nodecore.podsync.probing import ProbeCount, ProbeKind
from bindery.nodecore.podsync.restarts import RestartBackoff
from tests.nodecore.podsync.pods import rules


def test_pauses_double_from_ten_seconds_to_five_minutes() -> None:
    now_s = 1000.0
    backoff = RestartBackoff(lambda: now_s)
    lengths = []
    for _ in range(8):  # each time, the container ends as soon as it has started
        ended_s = now_s
        until_s = backoff.waits_until_s("key", ended_s)
        now_s = until_s or now_s
        lengths.append(now_s - ended_s)
        backoff.start("key", ended_s)

    assert lengths == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_container_that_ran_for_ten_minutes_starts_from_the_first_pause() -> None:
    now_s = 0.0
    backoff = RestartBackoff(lambda: now_s)
    backoff.start("key", 0.0)
    backoff.start("key", 10.0)
    now_s = 611.0

    assert backoff.waits_until_s("key", 611.0) is None
    backoff.start("key", 611.0)

    assert backoff.length_s("key") == 10


@pytest.mark.parametrize(
    ("kind", "results", "wanted"),
    [
        (ProbeKind.LIVENESS, "0001", [None, None, ProbeVerdict.FAILURE, ProbeVerdict.SUCCESS]),
        (ProbeKind.LIVENESS, "00100", [None, None, ProbeVerdict.SUCCESS, None, None]),
        (ProbeKind.READINESS, "1000", [ProbeVerdict.SUCCESS, None, None, ProbeVerdict.FAILURE]),
        (ProbeKind.STARTUP, "01", [None, ProbeVerdict.SUCCESS]),
    ],
)
def test_results_in_a_row_become_a_verdict(
    kind: ProbeKind, results: str, wanted: list[ProbeVerdict | None]
) -> None:
    count = ProbeCount(kind)

    assert [count.enter(success=one == "1") for one in results] == wanted


@pytest.mark.parametrize(
    ("kind", "started", "running_s", "is_due"),
    [
        (ProbeKind.STARTUP, False, 5.0, True),
        (ProbeKind.STARTUP, True, 5.0, False),
        (ProbeKind.LIVENESS, False, 5.0, False),
        (ProbeKind.LIVENESS, True, 5.0, True),
        (ProbeKind.READINESS, True, 1.0, False),
    ],
)
def test_when_a_probe_runs(kind: ProbeKind, started: bool, running_s: float, is_due: bool) -> None:
    count = ProbeCount(kind)

    assert count.is_due(started=started, running_s=running_s, initial_delay_s=3.0) == is_due


def test_a_container_that_has_failed_its_liveness_probe_is_not_probed_again() -> None:
    count = ProbeCount(ProbeKind.LIVENESS, failure_threshold=1)
    count.enter(success=False)

    assert not count.is_due(started=True, running_s=60.0, initial_delay_s=0.0)


@pytest.mark.parametrize(
    ("deletion_s", "pod_s", "reason", "wanted"),
    [
        (5, 30, KillReason.UNKNOWN, 5),
        (0, 30, KillReason.UNKNOWN, 0),
        (None, 30, KillReason.UNKNOWN, 30),
        (None, None, KillReason.UNKNOWN, 2),
        (None, 30, KillReason.LIVENESS_PROBE, 7),
        (5, 30, KillReason.LIVENESS_PROBE, 5),
        (None, 30, KillReason.STARTUP_PROBE, 30),
    ],
)
def test_grace_periods(
    deletion_s: int | None, pod_s: int | None, reason: KillReason, wanted: int
) -> None:
    assert grace_s(deletion_s, pod_s, reason, {KillReason.LIVENESS_PROBE: 7}) == wanted


@pytest.mark.parametrize(
    ("name", "running", "wanted"),
    [
        ("a", "abST", ""),
        ("T", "abST", "ab"),
        ("S", "abST", "abT"),
        ("S", "bS", "b"),
        ("x", "xa", ""),
    ],
)
def test_sidecars_end_after_the_app_containers_the_last_one_first(
    name: str, running: str, wanted: str
) -> None:
    assert ends_after(rules(inits="SxT", apps="ab"), name, running) == list(wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NONE)", "$(NONE)"),
        ("$(A", "$(A"),
        ("$A", "$A"),
        ("100$", "100$"),
        ("$$", "$"),
        ("", ""),
        ("$(E)", ""),
    ],
)
def test_references_to_variables(text: str, wanted: str) -> None:
    variables: Mapping[str, str] = {"A": "1", "B": "2", "E": ""}

    assert expand(text, variables) == wanted


def test_names_in_references_are_found_in_order() -> None:
    assert references("$(B)/$$(C)/$(A)") == ["B", "A"]


@given(st.text(alphabet="ab()"))
def test_text_without_a_dollar_sign_stays(text: str) -> None:
    assert expand(text, {"a": "x"}) == text
