"""Many requests at once, some of them slow, altered or deleted."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from bindery.api.configuration import BinderConfiguration
from bindery.kube.objects.resources import NAMESPACES, PODS
from devcluster.components import Component
from tests.binder.bindercluster import ALONE, Cluster, Gate

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]
ONE_AT_A_TIME = BinderConfiguration(leader_election=ALONE, concurrent_binds=1)


@pytest.fixture
def neighbours(cluster: Cluster) -> Iterator[Cluster]:
    """Another namespace on the same nodes."""
    name = f"{cluster.namespace}-too"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.administrator(lambda client: client.create(NAMESPACES, body))
    yield replace(cluster, namespace=name)
    cluster.administrator(lambda client: client.delete(NAMESPACES, name))


def request(cluster: Cluster, name: str, size: int, node: str, priority: int = 0) -> None:
    """Create a request for `size` new pods on one node."""
    uids = {binding["podName"]: binding["podUID"] for binding in cluster.add_pods(name, size)}
    bindings = [{"podName": n, "podUID": uid, "selectedNode": node} for n, uid in uids.items()]
    cluster.create(cluster.request(name, bindings, priority=priority))


def bound_in_order(*namespaces: Cluster) -> list[str]:
    """Return the names of all pods in the order in which they were bound."""
    pods = [pod for cluster in namespaces for pod in cluster.all(PODS.kind)]
    assert all(pod.spec.get("nodeName") for pod in pods)
    # Nobody has written on them since.
    pods.sort(key=lambda pod: int(pod.metadata.resource_version))
    return [pod.metadata.name for pod in pods]


def test_a_namespace_with_few_pods_does_not_wait_for_one_with_many(
    cluster: Cluster, neighbours: Cluster, start_binder: Start
) -> None:
    cluster.add_nodes(1)
    request(cluster, "many", 200, cluster.node(0))
    request(neighbours, "few", 3, cluster.node(0))

    start_binder(ONE_AT_A_TIME)
    cluster.wait_for("many", "Succeeded")
    neighbours.wait_for("few", "Succeeded")

    order = bound_in_order(cluster, neighbours)
    assert max(order.index(f"few-{number}") for number in range(3)) < 100


def test_the_higher_priority_is_bound_first_although_it_arrives_last(
    cluster: Cluster, start_binder: Start
) -> None:
    cluster.add_nodes(1)
    request(cluster, "plain", 200, cluster.node(0))
    request(cluster, "urgent", 3, cluster.node(0), priority=1000)

    start_binder(ONE_AT_A_TIME)
    cluster.wait_for("plain", "Succeeded")
    cluster.wait_for("urgent", "Succeeded")

    order = bound_in_order(cluster)
    assert max(order.index(f"urgent-{number}") for number in range(3)) < 100


def test_many_gangs_blocked_in_a_plugin_do_not_delay_others(
    cluster: Cluster, start_binder: Start, gate: Gate
) -> None:
    cluster.add_nodes(1)
    slow = [f"slow{number}" for number in range(30)]
    for name in slow:
        gate.hold("pre_bind", f"{name}-0")
    binder = start_binder(gate.configuration(concurrent_binds=1))
    for name in slow:
        request(cluster, name, 1, cluster.node(0))
    for name in slow:
        gate.wait_at(binder, "pre_bind", f"{name}-0")

    request(cluster, "quick", 2, cluster.node(0))
    cluster.wait_for("quick", "Succeeded")

    assert set(cluster.nodes_of("slow")) == {""}
    for name in slow:
        gate.let_go("pre_bind", f"{name}-0")
    for name in slow:
        cluster.wait_for(name, "Succeeded")


def test_steps_are_counted_by_plugin_and_result(
    cluster: Cluster, hold_gang: Start, gate: Gate
) -> None:
    binder = hold_gang()
    cluster.kubectl("delete", "bindrequest", "gang")
    gate.wait_at(binder, "rollback", "gang-0")
    gate.refuse("refused-0")
    bindings = cluster.add_pods("refused", 1)
    cluster.create(cluster.request("refused", bindings, backoffLimit=0))
    cluster.wait_for("refused", "Failed")

    def count(step: str, outcome: str) -> str:
        labels = f'outcome="{outcome}",plugin="gate",step="{step}"'
        start = f"bindery_binder_plugin_seconds_count{{{labels}}} "
        lines = binder.metrics().splitlines()
        return next((line.removeprefix(start) for line in lines if line.startswith(start)), "")

    assert count("pre_bind", "Done") == "1.0"
    assert count("pre_bind", "CutOff") == "1.0"
    assert count("pre_bind", "PluginFailed") == "1.0"
    assert count("rollback", "Done") == "3.0"
