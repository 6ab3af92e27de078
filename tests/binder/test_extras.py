"""Extra pods are bound or fail with their gang, on the real API server."""

from collections.abc import Callable

import pytest

from devcluster.components import Component
from tests.binder.bindercluster import Cluster, Gate

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]

EXTRAS = "a-extra"
"""Before the gang by name, and so in what a binder sees first when it starts."""


def create_extras(cluster: Cluster) -> None:
    """Create two extra pods and their request, which comes after that of the gang `gang`."""
    bindings = cluster.add_pods(EXTRAS, 2)
    cluster.create(cluster.request(EXTRAS, bindings, after="gang", minBound=0))


def test_extra_pods_wait_during_retries_of_their_gang_and_fail_with_it(
    cluster: Cluster, start_binder: Start, gate: Gate
) -> None:
    cluster.add_nodes(2)
    gate.refuse("gang-1")
    gate.hold("rollback", "gang-1")
    binder = start_binder(gate.configuration(max_backoff_seconds=0.2))
    cluster.create(cluster.request("gang", cluster.add_pods("gang", 2), backoffLimit=2))
    create_extras(cluster)

    gate.wait_at(binder, "rollback", "gang-1")
    assert cluster.status(EXTRAS).get("phase", "Pending") == "Pending"
    gate.let_go("rollback", "gang-1")

    assert cluster.wait_for("gang", "Failed")["failedAttempts"] == 2
    status = cluster.wait_for(EXTRAS, "Failed")
    assert status["reason"] == "PredecessorFailed"
    assert status["failedAttempts"] == 0
    unbound = cluster.only(EXTRAS)["unboundPods"]
    assert [pod["reason"] for pod in unbound] == ["PredecessorFailed"] * 2
    assert cluster.nodes_of("") == [""] * 4
    assert gate.prepared == set()


@pytest.mark.parametrize(
    ("step", "at"), [("pre_bind", "gang-1"), ("post_bind", "gang-1"), ("pre_bind", f"{EXTRAS}-1")]
)
def test_the_next_binder_continues_gang_and_extra_pods_of_a_killed_one(
    cluster: Cluster, start_binder: Start, gate: Gate, step: str, at: str
) -> None:
    cluster.add_nodes(2)
    gate.hold(step, at)
    binder = start_binder(gate.configuration())
    cluster.create(cluster.request("gang", cluster.add_pods("gang", 2)))
    create_extras(cluster)
    gate.wait_at(binder, step, at)

    binder.kill()

    assert not any(cluster.nodes_of(EXTRAS))
    gate.let_go(step, at)
    binder.restart()
    assert cluster.wait_for(EXTRAS, "Succeeded")["boundCount"] == 2
    assert cluster.status("gang")["boundCount"] == 2


def test_extra_pods_fail_if_their_gang_failed_while_no_binder_ran(
    cluster: Cluster, hold_gang: Start, gate: Gate
) -> None:
    binder = hold_gang()
    create_extras(cluster)
    binder.kill()
    cluster.kubectl("delete", "pod", "gang-0")

    binder.restart()

    assert cluster.wait_for(EXTRAS, "Failed")["reason"] == "PredecessorFailed"
    assert cluster.status("gang")["reason"] == "PodGone"
    assert not any(cluster.nodes_of(""))
    assert gate.prepared == set()


@pytest.mark.parametrize("is_running", [True, False])
def test_extra_pods_fail_when_the_gangs_request_is_deleted(
    cluster: Cluster, hold_gang: Start, gate: Gate, is_running: bool
) -> None:
    binder = hold_gang()
    create_extras(cluster)
    if not is_running:
        binder.kill()

    cluster.kubectl("delete", "bindrequest", "gang")
    if not is_running:
        binder.restart()

    assert cluster.wait_for(EXTRAS, "Failed")["reason"] == "PredecessorGone"
    assert not any(cluster.nodes_of(""))
