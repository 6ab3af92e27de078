"""The node refuses the pods that the kubelet refuses, with its messages, case by case."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from bindery.nodecore.admission import preemption, sysctls
from bindery.nodecore.admission.chain import Managers, check_predicates
from bindery.nodecore.admission.facts import Candidate, NodeFacts
from bindery.nodecore.admission.predicates import failures, insufficient
from bindery.nodecore.admission.result import ADMITTED
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.pods import Pod, resources, total
from tests.nodecore.kubelettables import Json, cases, pod


def candidate(found: Json) -> Candidate:
    return Candidate(
        pod(found),
        node_name=found["spec"].get("nodeName", ""),
        host_ports=[
            (address, protocol, port) for address, protocol, port in found.get("ports", ())
        ],
    )


@cases("admission", "predicates")
def test_pods_that_do_not_fit_are_refused(case: Json) -> None:
    asking = replace(
        candidate(case["pod"]),
        matches_node_affinity=case["matches"],
        is_static=case["static"],
        tolerates_no_execute=case["tolerates"],
    )
    node = NodeFacts(
        case["node"], resources(case["allocatable"]), [candidate(one) for one in case["pods"]]
    )

    found = failures(asking, node, node.allocatable)
    assert [one.message for one in found] == case["messages"]


@cases("admission", "unknown_resources")
def test_extended_resources_unknown_to_the_node_are_ignored(case: Json) -> None:
    node = NodeFacts("node", {"pods": 10, **resources(case["allocatable"])})
    found = insufficient(Candidate(pod(case["pod"])), node, node.allocatable)
    left = total(pod(case["left"]))

    expected = {name for name, amount in left.items() if amount > node.allocatable.get(name, 0)}
    assert {one.resource for one in found} == expected


@cases("admission", "victims")
def test_pods_are_evicted_for_critical_pods(case: Json) -> None:
    pods = [candidate(one) for one in case["pods"]]
    with pytest.raises(preemption.NoVictimsError) if case["refused"] else nullcontext():
        found = preemption.victims(candidate(case["preemptor"]), pods, case["missing"])
        assert sorted(one.pod.uid for one in found) == sorted(case["victims"])


@cases("admission", "distances")
def test_the_distance_of_a_pod_to_the_missing_resources_is_computed(case: Json) -> None:
    found = preemption.distance(case["missing"], candidate(case["pod"]))

    assert found == pytest.approx(case["distance"])


@cases("admission", "left_over")
def test_resources_of_an_evicted_pod_are_no_longer_missing(case: Json) -> None:
    assert preemption.left_over(case["missing"], [candidate(case["pod"])]) == case["left"]


@cases("admission", "allowlists")
def test_only_namespaced_sysctls_can_be_allowed(case: Json) -> None:
    with pytest.raises(ConfigurationError) if case["refused"] else nullcontext():
        sysctls.check_allowlist(case["patterns"] or ())


@cases("admission", "sysctls")
def test_sysctls_are_allowed_by_the_list(case: Json) -> None:
    patterns = [*sysctls.SAFE, "kernel.msg*", "kernel.sem", "net.b.*"]
    why = sysctls.refusal(
        case["sysctl"], patterns, host_network=case["host_network"], host_ipc=case["host_ipc"]
    )

    assert (why is not None) == case["refused"]


@cases("admission", "systems")
def test_pods_for_other_systems_are_refused(case: Json) -> None:
    asking = Candidate(
        Pod("uid", ()),
        labels=case["labels"],
        os=case["os"],
        strict_supplemental_groups=case["strict"],
    )
    node = NodeFacts("node", {"pods": 10}, has_supplemental_groups=case["supported"])
    managers = Managers(lambda _pod: ADMITTED, lambda _uid, found: found, lambda _pod: None)

    assert check_predicates(asking, node, managers).reason == case["reason"]
