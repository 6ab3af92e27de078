"""Binders that are killed, stopped or replaced, and requests that change under them."""

import signal
from collections.abc import Callable

import pytest

from bindery.api.configuration import BinderConfiguration, LeaderElection
from devcluster.components import Component
from tests.binder.bindercluster import ALONE, Cluster, Gate

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]


@pytest.mark.parametrize("step", ["pre_bind", "post_bind"])
def test_the_next_binder_binds_a_gang_whole_after_a_kill_at_a_plugin_step(
    cluster: Cluster, hold_gang: Start, gate: Gate, step: str
) -> None:
    binder = hold_gang(step, size=3)

    binder.kill()

    assert any(cluster.nodes_of("gang")) == (step == "post_bind")
    assert cluster.status("gang")["phase"] in ("Pending", "Binding")
    gate.let_go(step, "gang-1")
    binder.restart()
    assert cluster.wait_for("gang", "Succeeded")["boundCount"] == 3
    assert cluster.nodes_of("gang") == [cluster.node(n) for n in range(3)]


@pytest.mark.long("the kill matrix shows it")
def test_the_next_binder_binds_a_gang_whole_after_a_kill_between_two_bindings(
    cluster: Cluster, start_binder: Start
) -> None:
    size = 200
    cluster.add_nodes(1)
    cluster.add_pods("gang", size)
    names = [f"gang-{number}" for number in range(size)]
    uids = cluster.kubectl("get", "pods", "--output=jsonpath={.items[*].metadata.uid}").split()
    order = cluster.kubectl("get", "pods", "--output=jsonpath={.items[*].metadata.name}").split()
    bindings = [
        {"podName": name, "podUID": uid, "selectedNode": cluster.node(0)}
        for name, uid in zip(order, uids, strict=True)
    ]
    assert set(order) == set(names)
    binder = start_binder(BinderConfiguration(leader_election=ALONE, concurrent_binds=1))
    cluster.create(cluster.request("gang", bindings))
    cluster.wait_bound(order[0])

    binder.kill()

    bound = sum(map(bool, cluster.nodes_of("gang")))
    assert 0 < bound < size, "the binder was not killed between two bindings"
    binder.restart()
    assert cluster.wait_for("gang", "Succeeded")["boundCount"] == size
    assert cluster.nodes_of("gang") == [cluster.node(0)] * size


def test_a_gang_that_lost_a_pod_after_a_kill_leaves_nothing_prepared(
    cluster: Cluster, hold_gang: Start, gate: Gate
) -> None:
    binder = hold_gang()
    binder.kill()
    assert gate.prepared == {"prepared-gang-0", "prepared-gang-1"}

    cluster.kubectl("delete", "pod", "gang-1")
    binder.restart()

    assert cluster.wait_for("gang", "Failed")["reason"] == "PodGone"
    assert gate.prepared == set()
    assert cluster.nodes_of("gang-0") == [""]


def test_a_request_deleted_during_its_run_is_rolled_back(
    cluster: Cluster, hold_gang: Start, gate: Gate
) -> None:
    binder = hold_gang()

    cluster.kubectl("delete", "bindrequest", "gang")

    gate.wait_at(binder, "rollback", "gang-0")
    binder.process.wait_until(lambda: not gate.prepared, "rolled back", 20)
    assert cluster.nodes_of("gang") == ["", ""]
    gate.let_go("pre_bind", "gang-1")
    cluster.create(cluster.request("gang", cluster.bindings("gang", 2)))
    cluster.wait_for("gang", "Succeeded")


def test_a_request_with_a_spec_changed_during_its_run_is_restarted(
    cluster: Cluster, hold_gang: Start, gate: Gate
) -> None:
    binder = hold_gang()

    node = cluster.node(2)
    path = "/spec/statements/0/pods/0/selectedNode"
    change = f'[{{"op": "replace", "path": "{path}", "value": "{node}"}}]'
    cluster.kubectl("patch", "bindrequest", "gang", "--type=json", f"--patch={change}")
    gate.wait_at(binder, "rollback", "gang-0")
    gate.let_go("pre_bind", "gang-1")

    cluster.wait_for("gang", "Succeeded")
    assert cluster.nodes_of("gang") == [cluster.node(2), cluster.node(1)]


def test_a_pod_is_bound_by_one_request_at_a_time(
    cluster: Cluster, hold_gang: Start, gate: Gate
) -> None:
    hold_gang()

    cluster.create(cluster.request("second", cluster.bindings("gang", 2)))

    assert cluster.wait_for("second", "Failed")["reason"] == "HeldByOtherRequest"
    gate.let_go("pre_bind", "gang-1")
    cluster.wait_for("gang", "Succeeded")


def test_a_stopped_binder_exits_cleanly_and_the_next_one_continues(
    cluster: Cluster, start_binder: Start, gate: Gate
) -> None:
    cluster.add_nodes(1)
    bindings = cluster.add_pods("job", 1)
    gate.hold("pre_bind", "job-0")
    binder = start_binder(gate.configuration())
    cluster.create(cluster.request("job", bindings))
    gate.wait_at(binder, "pre_bind", "job-0")

    binder.process._child.send_signal(signal.SIGTERM)

    assert binder.process.wait(10) == 0
    gate.let_go("pre_bind", "job-0")
    binder.restart()
    cluster.wait_for("job", "Succeeded")


@pytest.mark.long("histories show it")
def test_a_standby_takes_over_from_a_killed_binder(cluster: Cluster, start_binder: Start) -> None:
    cluster.add_nodes(1)
    bindings = cluster.add_pods("job", 1)
    quick = LeaderElection(lease_seconds=3, renew_deadline_seconds=2, retry_seconds=0.5)
    configuration = BinderConfiguration(leader_election=quick)
    leader = start_binder(configuration, name="binder-a")
    leader.process.wait_until(lambda: "leading" in leader.log.read_text(), "leading", 20)
    standby = start_binder(configuration, name="binder-b")

    leader.kill()
    cluster.create(cluster.request("job", bindings))

    cluster.wait_for("job", "Succeeded")
    assert "leading" in standby.log.read_text()
