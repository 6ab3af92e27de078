"""Statements that share a request end independently, on the real API server."""

import time
from collections.abc import Callable

import pytest

from devcluster.components import Component
from tests.binder.bindercluster import Cluster, Gate

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]
LIFE_S = 3.0
"""How long a request is kept after its end."""


def test_three_statements_end_independently_and_the_request_is_kept_until_the_last(
    cluster: Cluster, start_binder: Start, gate: Gate
) -> None:
    cluster.add_nodes(2)
    gate.hold("pre_bind", "slow-1")
    binder = start_binder(gate.configuration(time_to_live_seconds=LIFE_S))
    gangs = {name: cluster.add_pods(name, 2) for name in ("quick", "lost", "slow")}
    cluster.kubectl("delete", "pod", "lost-0")

    cluster.create(cluster.shared("three", gangs))

    assert cluster.wait_for_end("three", "lost") == "Failed/PodGone"
    assert cluster.wait_for_end("three", "quick") == "Succeeded/Bound"
    gate.wait_at(binder, "pre_bind", "slow-1")
    assert cluster.nodes_of("quick") == [cluster.node(0), cluster.node(1)]
    assert not any(cluster.nodes_of("slow") + cluster.nodes_of("lost"))
    cluster.kubectl(
        "wait", "bindrequest/three", "--timeout=30s",
        '--for=jsonpath={.status.statements[?(@.id=="slow")].reason}=Preparing',
    )  # fmt: skip
    time.sleep(LIFE_S)
    status = cluster.status("three")
    assert (status["phase"], status["reason"], status["boundCount"]) == ("Binding", "PodGone", 2)
    assert status["message"].startswith("1 of 3 Statements failed; lost: ")
    by_id = {each["id"]: each for each in status["statements"]}
    assert [pod["podName"] for pod in by_id["lost"]["unboundPods"]] == ["lost-0", "lost-1"]
    assert "boundPods" not in by_id["quick"]
    assert cluster.wait_event("BindingFailed", "three").startswith("lost: PodGone: ")
    assert cluster.wait_event("Bound", "three").startswith("quick: bound 2 of 2 pods to ")
    gate.let_go("pre_bind", "slow-1")

    status = cluster.wait_for("three", "Failed")

    assert status["boundCount"] == 4
    assert cluster.nodes_of("slow") == [cluster.node(0), cluster.node(1)]
    assert gate.prepared == {f"prepared-{name}-{n}" for name in ("quick", "slow") for n in (0, 1)}
    cluster.wait_gone("bindrequest", "three")


def test_a_withdrawn_statement_is_rolled_back_and_its_neighbours_are_bound(
    cluster: Cluster, start_binder: Start, gate: Gate
) -> None:
    cluster.add_nodes(2)
    names = ("first", "second", "slow", "extra")
    for name in names[:3]:
        gate.hold("pre_bind", f"{name}-1")
    binder = start_binder(gate.configuration())
    gangs = {name: cluster.add_pods(name, 2) for name in names}
    extra = {"after": "slow", "minBound": 0}
    cluster.create(cluster.shared("several", gangs, extra=extra))
    for name in names[:3]:
        gate.wait_at(binder, "pre_bind", f"{name}-1")

    cluster.withdraw("several", "first")

    assert cluster.wait_for_end("several", "first") == "Failed/Withdrawn"
    assert set(cluster.ends("several")) - {"first"} <= {"second", "slow", "extra"}
    assert not any(cluster.nodes_of(""))

    binder.kill()
    cluster.withdraw("several", "first", "second")
    gate.let_go("pre_bind", "slow-1")
    binder.restart()

    assert cluster.wait_for_end("several", "second") == "Failed/Withdrawn"
    assert cluster.wait_for("several", "Failed")["boundCount"] == 4
    assert cluster.ends("several") == {
        "first": ("Failed", "Withdrawn"),
        "second": ("Failed", "Withdrawn"),
        "slow": ("Succeeded", "Bound"),
        "extra": ("Succeeded", "Bound"),
    }
    assert gate.prepared == {f"prepared-{name}-{n}" for name in ("slow", "extra") for n in (0, 1)}


def test_a_malformed_statement_fails_alone_and_a_duplicate_fails_the_request(
    cluster: Cluster, share_binder: Callable[..., None]
) -> None:
    cluster.add_nodes(2)
    good, bad = cluster.add_pods("good", 2), cluster.add_pods("bad", 1)
    twice = cluster.shared("twice", {"one": cluster.add_pods("one", 1)})
    twice["spec"]["statements"] *= 2
    share_binder()

    cluster.create(cluster.shared("half", {"bad": bad * 2, "good": good}), twice)

    assert cluster.wait_for("half", "Failed")["boundCount"] == 2
    assert cluster.ends("half") == {"bad": ("Failed", "Malformed"), "good": ("Succeeded", "Bound")}
    assert "is named twice" in cluster.wait_event("Malformed", "half")
    status = cluster.wait_for("twice", "Failed")
    assert (status["reason"], "statements" in status) == ("Malformed", False)
    assert cluster.wait_event("Malformed", "twice") == "it carries the Statement one twice"
    assert sum(map(bool, cluster.nodes_of(""))) == 2
