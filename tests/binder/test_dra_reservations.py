"""The writes of the dra plugin to claims, and their rollback."""

from typing import Any

import msgspec
import pytest

from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.dra import reservations
from bindery.binder.plugins.dra.conditions import readiness
from bindery.binder.plugins.interface import PluginError
from bindery.kube.objects.claims import FINALIZER, ClaimHandover, ResourceClaim

POD = PodView("space", "worker", "pod-1", "", ending=False)
NOW = "2026-01-01T00:00:00Z"
RESULT = {"request": "r", "driver": "d.example.com", "pool": "node", "device": "gpu-0"}
ME = {"resource": "pods", "name": "worker", "uid": "pod-1"}
OTHER = {"resource": "pods", "name": "other", "uid": "pod-2"}


def only(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def allocated(device: str = "gpu-0", node: str = "node") -> dict[str, Any]:
    return {"devices": {"results": [{**RESULT, "device": device}]}, "nodeSelector": only(node)}


def planned(**further: Any) -> ClaimHandover:
    body = {"name": "claim", "uid": "claim-1", "allocation": allocated(), **further}
    return msgspec.convert(body, ClaimHandover)


def claim(status: dict[str, Any] | None = None, **meta: Any) -> ResourceClaim:
    body = {"metadata": {"name": "claim", "uid": "claim-1", **meta}, "status": status or {}}
    return msgspec.convert(body, ResourceClaim)


def test_an_empty_claim_is_allocated_and_reserved_in_one_write() -> None:
    patch = reservations.reserved(claim(), planned(), POD, "node", NOW)

    assert patch is not None
    status = patch["status"]
    assert status["allocation"]["devices"]["results"] == [RESULT]
    assert status["allocation"]["allocationTimestamp"] == NOW
    assert status["reservedFor"] == [ME]


def test_an_allocated_claim_is_reserved_in_addition_to_other_consumers() -> None:
    found = claim({"allocation": allocated(), "reservedFor": [OTHER]})

    patch = reservations.reserved(found, planned(), POD, "node", NOW)

    assert patch == {"status": {"reservedFor": [OTHER, ME]}}


def test_a_reservation_is_not_written_twice() -> None:
    found = claim({"allocation": allocated(), "reservedFor": [ME]}, finalizers=[FINALIZER])

    assert reservations.reserved(found, planned(), POD, "node", NOW) is None
    assert reservations.with_finalizer(found) is None


def test_an_allocation_of_other_devices_of_the_same_node_is_accepted() -> None:
    found = claim({"allocation": allocated("gpu-7"), "reservedFor": [OTHER]})

    assert reservations.reserved(found, planned(), POD, "node", NOW) is not None


def test_a_claim_allocated_on_another_node_fails_permanently() -> None:
    found = claim({"allocation": allocated(node="far")})

    with pytest.raises(PluginError, match="allocated elsewhere") as caught:
        reservations.reserved(found, planned(), POD, "node", NOW)

    assert caught.value.permanent


def test_a_claim_is_reserved_for_at_most_256_pods() -> None:
    users = [{"resource": "pods", "name": f"p{i}", "uid": f"u{i}"} for i in range(256)]
    found = claim({"allocation": allocated(), "reservedFor": users})

    with pytest.raises(PluginError, match="reserved by 256 pods already"):
        reservations.reserved(found, planned(), POD, "node", NOW)


@pytest.mark.parametrize(
    ("meta", "wanted", "text"),
    [
        ({"uid": "claim-2"}, {}, "is not the one that was planned"),
        ({"deletionTimestamp": NOW}, {}, "is being deleted"),
        ({}, {"isOwn": True}, "was not made for this pod"),
        (
            {"ownerReferences": [{"uid": "pod-2", "controller": True}]},
            {"isOwn": True},
            "was not made for this pod",
        ),
    ],
)
def test_a_claim_of_another_pod_is_refused_permanently(
    meta: dict[str, Any], wanted: dict[str, Any], text: str
) -> None:
    with pytest.raises(PluginError, match=text) as caught:
        reservations.check(claim(**meta), planned(**wanted), POD)

    assert caught.value.permanent


def test_rollback_deallocates_the_devices_of_this_request() -> None:
    found = claim({"allocation": allocated(), "reservedFor": [ME]})

    patch = reservations.released(found, planned(), POD)

    assert patch == {"status": {"reservedFor": None, "allocation": None}}


def test_rollback_keeps_the_reservations_of_others() -> None:
    found = claim({"allocation": allocated(), "reservedFor": [OTHER, ME]})

    assert reservations.released(found, planned(), POD) == {"status": {"reservedFor": [OTHER]}}


@pytest.mark.parametrize("found", [allocated("gpu-7"), allocated()])
def test_rollback_keeps_the_allocations_of_others(found: dict[str, Any]) -> None:
    was_there = found == allocated()

    patch = reservations.released(claim({"allocation": found}), planned(isNew=not was_there), POD)

    assert patch is None


@pytest.mark.parametrize("found", [allocated("gpu-7"), allocated()])
def test_the_last_consumer_deallocates_a_claim_regardless_of_its_allocator(
    found: dict[str, Any],
) -> None:
    was_there = found == allocated()
    status = {"allocation": found, "reservedFor": [ME]}

    patch = reservations.released(claim(status), planned(isNew=not was_there), POD)

    assert patch == {"status": {"reservedFor": None, "allocation": None}}


def test_rollback_without_a_reservation_changes_nothing() -> None:
    assert reservations.released(claim(), planned(), POD) is None
    assert reservations.without_finalizer(claim()) is None


def test_the_finalizer_is_kept_while_the_claim_is_allocated() -> None:
    found = claim({"allocation": allocated()}, finalizers=["keep", FINALIZER])
    freed = claim(finalizers=["keep", FINALIZER])

    assert reservations.without_finalizer(found) is None
    assert reservations.without_finalizer(freed) == {"metadata": {"finalizers": ["keep"]}}


def conditioned(*true: str) -> ResourceClaim:
    result = {**RESULT, "bindingConditions": ["A", "B"], "bindingFailureConditions": ["Broken"]}
    conditions = [{"type": kind, "status": "True"} for kind in true]
    device = {"driver": RESULT["driver"], "pool": "node", "device": "gpu-0"}
    return claim(
        {
            "allocation": {"devices": {"results": [result]}},
            "devices": [{**device, "conditions": conditions}],
        }
    )


def test_a_device_is_ready_when_all_its_conditions_are_true() -> None:
    assert readiness(conditioned("A")) == "d.example.com/node/gpu-0 is not yet B"
    assert readiness(conditioned("A", "B")) is None


def test_a_failed_device_is_never_ready() -> None:
    with pytest.raises(PluginError, match="cannot be used: Broken"):
        readiness(conditioned("A", "B", "Broken"))


def test_a_deallocated_claim_is_not_awaited() -> None:
    with pytest.raises(PluginError, match="deallocated in the meantime"):
        readiness(claim())


GROUP = {
    "apiGroup": "scheduling.k8s.io",
    "resource": "podgroups",
    "name": "train",
    "uid": "group-1",
}


def test_a_claim_of_a_group_is_reserved_for_the_group_once() -> None:
    plan = planned(consumer=GROUP)

    patch = reservations.reserved(claim(), plan, POD, "node", NOW)

    assert patch is not None
    assert patch["status"]["reservedFor"] == [GROUP]
    again = claim({"allocation": allocated(), "reservedFor": [GROUP]})
    assert reservations.reserved(again, plan, POD, "node", NOW) is None
    reservations.check_reserved(again, plan, POD)


def test_the_reservation_of_a_group_is_rolled_back_as_one() -> None:
    found = claim({"allocation": allocated(), "reservedFor": [GROUP]})

    patch = reservations.released(found, planned(consumer=GROUP), POD)

    assert patch == {"status": {"reservedFor": None, "allocation": None}}


def test_a_claim_created_for_the_group_is_not_an_own_claim_of_the_pod() -> None:
    owner = {"uid": "group-1", "controller": True, "kind": "PodGroup", "name": "train"}
    found = claim(ownerReferences=[owner])

    reservations.check(found, planned(isOwn=True, consumer=GROUP), POD)
    with pytest.raises(PluginError, match="not made for this pod"):
        reservations.check(found, planned(isOwn=True), POD)
