"""The status of a BindRequest before it has an outcome, on the real API server."""

import time
from collections.abc import Callable

import pytest

from bindery.api.names import NODE_POOL_LABEL
from devcluster.components import Component, Components
from tests.binder.bindercluster import Cluster, Gate

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]
QUIET_S = 3.0
"""Longer than the binder waits before it writes what a request waits for."""


def test_an_unprocessed_request_shows_phase_pods_and_nodes(
    cluster: Cluster, components: Components
) -> None:
    del components  # whose definitions of the kinds are needed, and none of the processes
    cluster.add_nodes(3)
    bindings = cluster.add_pods("gang", 3)
    summary = {"gangs": "big", "pods": 3, "nodes": "node-1,node-2 +1"}
    group = {"name": "big", "uid": "0"}

    cluster.create(cluster.request("fresh", bindings, summary=summary, podGroup=group))
    table = cluster.kubectl("get", "bindrequests", "fresh").splitlines()

    columns = ["PHASE", "GANGS", "PODS", "BOUND", "NODES", "ATTEMPTS", "REASON", "AGE"]
    assert table[0].split() == ["NAME", *columns]
    shown = table[1].split()
    assert shown[:7] == ["fresh", "Pending", "big", "3", "0", "node-1,node-2", "+1"]
    assert cluster.status("fresh")["phase"] == "Pending"


def test_a_gang_without_a_scheduler_is_shown_as_waiting(
    cluster: Cluster, components: Components
) -> None:
    del components
    group = {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "fresh", "labels": {NODE_POOL_LABEL: cluster.namespace}},
        "spec": {"minMember": 4, "queue": "team"},
    }

    cluster.create(group)
    table = cluster.kubectl("get", "podgroups", "fresh").splitlines()

    counts = ["PENDING", "BOUND", "RUNNING"]
    columns = ["NAME", "QUEUE", "MIN", "STATE", "SINCE", *counts, "IDLE", "REASON", "AGE"]
    assert table[0].split() == columns
    # Its queue is the scheduler's answer, so that column is empty.
    assert table[1].split()[:3] == ["fresh", "4", "Waiting"]


def version(cluster: Cluster) -> str:
    """Return the version of the gang's request, which changes with every write."""
    return cluster.kubectl(
        "get", "bindrequest/gang", "--output=jsonpath={.metadata.resourceVersion}"
    )


def test_a_waiting_request_reports_its_wait_reason_once(
    cluster: Cluster, gate: Gate, hold_gang: Callable[..., Component]
) -> None:
    hold_gang()
    cluster.kubectl(
        "wait", "bindrequest/gang", "--for=jsonpath={.status.reason}=Preparing", "--timeout=30s"
    )

    status = cluster.status("gang")
    assert status["phase"] == "Pending"
    assert status["message"] == "the plugin gate is at work, for 1 of 2 pods"
    written = version(cluster)
    time.sleep(QUIET_S)
    assert version(cluster) == written

    gate.let_go("pre_bind", "gang-1")
    status = cluster.wait_for("gang", "Succeeded")
    assert (status["reason"], status["message"]) == ("Bound", "")


def test_a_part_reports_that_other_parts_are_missing(cluster: Cluster, start_binder: Start) -> None:
    cluster.add_nodes(2)
    bindings = cluster.add_pods("gang", 2)
    start_binder()

    for part in range(2):
        statement = {"id": "split", "part": part, "parts": 2}
        request = cluster.request(f"split-{part}", [bindings[part]], **statement)
        cluster.create(request)
        if part == 0:
            cluster.kubectl(
                "wait", "bindrequest/split-0",
                "--for=jsonpath={.status.reason}=WaitsForParts", "--timeout=30s",
            )  # fmt: skip

    assert cluster.wait_for("split-0", "Succeeded")["boundCount"] == 1
    assert cluster.wait_for("split-1", "Succeeded")["boundCount"] == 1
