"""Requests that nobody will finish are cleared, and no others."""

import pytest
from schedulerworld import NOW, add, engine_with, gang, node, plan, pod, request

from bindery.kube.bindrequests import BindRequest
from bindery.kube.objects import KubeObject
from bindery.scheduler.commit.stale import stale_requests

TIMEOUT_S = 600.0
NEW = "2025-06-15T15:06:38Z"
MINUTE_OLD = "2025-06-15T15:05:40Z"
HOUR_OLD = "2025-06-15T14:06:40Z"
TWO = {"uid-a": "n", "uid-b": "m"}
BOTH = [node("n"), node("m"), pod("a"), pod("b")]


def reasons(*items: KubeObject) -> list[str]:
    cluster = engine_with(*items).cluster
    return [stale.reason for stale in stale_requests(cluster, NOW, TIMEOUT_S)]


CASES: dict[str, tuple[list[KubeObject], BindRequest, list[str]]] = {
    "young and possible": (BOTH, request("r", TWO, created=MINUTE_OLD), []),
    "one pod of a gang is gone": (
        [node("n"), node("m"), pod("a")], request("r", TWO, created=MINUTE_OLD), ["PodsGone"],
    ),
    "one node of a gang is gone": (
        [node("n"), pod("a"), pod("b")], request("r", TWO, created=MINUTE_OLD), ["NodesGone"],
    ),
    "one of pods that stand alone is gone": (
        [node("n"), node("m"), pod("a")], request("r", TWO, created=MINUTE_OLD, min_bound=0), [],
    ),
    "all pods that stand alone are gone": (
        [node("n"), node("m")], request("r", TWO, created=MINUTE_OLD, min_bound=0), ["PodsGone"],
    ),
    "one node of pods that stand alone is gone": (
        [node("n"), pod("a"), pod("b")], request("r", TWO, created=MINUTE_OLD, min_bound=0), [],
    ),
    "a namesake is not the pod": (
        [node("n"), pod("a", uid="second")],
        request("r", {"uid-a": "n"}, created=MINUTE_OLD),
        ["PodsGone"],
    ),
    "so new that watches may not be in step": ([], request("r", TWO, created=NEW), []),
    "without an outcome for too long": (BOTH, request("r", TWO, created=HOUR_OLD), ["TimedOut"]),
    "being bound for too long": (
        BOTH, request("r", TWO, created=HOUR_OLD, phase="Binding"), ["TimedOut"],
    ),
    "finished well, however old": (
        BOTH, request("r", TWO, created=HOUR_OLD, phase="Succeeded", bound=list(TWO)), [],
    ),
    "failed, and a pod of it waits": (
        BOTH, request("r", TWO, created=HOUR_OLD, phase="Failed"), [],
    ),
    "failed, and its pods are gone": (
        [], request("r", TWO, created=HOUR_OLD, phase="Failed"), ["Superseded"],
    ),
    "a part whose Statement came whole a short while ago": (
        BOTH, request("r", TWO, created=NEW, parts=2), [],
    ),
    "a part that has been alone for a minute": (
        BOTH, request("r", TWO, created=MINUTE_OLD, parts=2), ["Incomplete"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_cleared_only_when_nobody_will_finish_it(case: str) -> None:
    items, found, expected = CASES[case]

    assert reasons(*items, found) == expected


def test_a_failed_request_is_cleared_once_its_pods_are_planned_anew() -> None:
    engine = engine_with(*BOTH, request("r", TWO, created=MINUTE_OLD, phase="Failed"))
    assert not list(stale_requests(engine.cluster, NOW, TIMEOUT_S))

    assert set(plan(engine)) == {"a", "b"}

    assert [s.reason for s in stale_requests(engine.cluster, NOW, TIMEOUT_S)] == ["Superseded"]


def test_a_statement_that_is_being_written_is_not_called_incomplete() -> None:
    part = request("r", TWO, created=MINUTE_OLD, parts=2)
    engine = engine_with(*BOTH, part, *gang("g", 1))
    drafts = list(engine.cycle())
    assert drafts
    assert not list(stale_requests(engine.cluster, NOW, TIMEOUT_S))

    for draft in drafts:
        engine.refused(draft)

    assert [s.reason for s in stale_requests(engine.cluster, NOW, TIMEOUT_S)] == ["Incomplete"]


def test_parts_that_have_all_come_are_complete() -> None:
    engine = engine_with(*BOTH)
    for part, places in enumerate(({"uid-a": "n"}, {"uid-b": "m"})):
        item = request("r", places, created=MINUTE_OLD, part=part, parts=2)
        name = f"r-p{part}"
        meta = type(item.metadata)(
            name=name, namespace="team", uid=name, creation_timestamp=MINUTE_OLD
        )
        add(engine.cluster, BindRequest(metadata=meta, spec=item.spec, status=item.status))

    assert not list(stale_requests(engine.cluster, NOW, TIMEOUT_S))


def test_another_pools_requests_are_not_touched() -> None:
    label = {"scheduling.bindery.dev/node-pool": "other"}

    assert reasons(request("r", TWO, created=HOUR_OLD, labels=label)) == []
