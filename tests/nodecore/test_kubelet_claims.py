"""Resource claims are prepared and unprepared as the kubelet does, case by case."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext

import pytest

from bindery.nodecore.checkpoints import claims as files
from bindery.nodecore.checkpoints.claims import PreparedClaim
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.claims.calls import Prepared
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod, ResourceClaim
from bindery.nodecore.claims.manager import ClaimManager
from tests.nodecore import answering
from tests.nodecore.kubelettables import Json, cases
from tests.nodecore.nodes import FakeNode
from tests.nodecore.test_kubelet_checkpoints import devices, prepared


class FakeDriver:
    """A driver with the answer of the case, which counts calls."""

    def __init__(self, case: Json) -> None:
        self._case = case
        self.calls = 0

    def prepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, Prepared]:
        self._call()
        answer = self._case["answer"]
        if answer is None:
            return {claim.uid: Prepared() for claim in claims}
        return {
            uid: Prepared() if one is None else Prepared(devices(one["devices"]), one["error"])
            for uid, one in answer.items()
        }

    def unprepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, str]:
        self._call()
        answer = self._case["answer"]
        if answer is None:
            return {claim.uid: "" for claim in claims}
        return {uid: "" if one is None else one["error"] for uid, one in answer.items()}

    def _call(self) -> None:
        self.calls += 1
        if self._case["timeout"]:
            raise ClaimError("rpc error: code = DeadlineExceeded")


def find_driver(case: Json, driver: FakeDriver) -> Callable[[str], FakeDriver]:
    """Return what finds the driver of the case by its name."""

    def find(name: str) -> FakeDriver:
        if name != case.get("driver", name):
            raise ClaimError(f"DRA driver {name} is not registered")
        return driver

    return find


def started(case: Json, driver: FakeDriver) -> ClaimManager:
    """Return a manager that has restored the claim of the case."""
    before = case["before"]
    store = MemoryStore()
    if before is not None:
        store.write(files.FILE, files.encode((prepared(before["state"]),)))

    manager = ClaimManager(CheckpointManager(store), FakeNode(), find_driver(case, driver))
    manager.start()
    return manager


def prepare(case: Json, manager: ClaimManager, driver: FakeDriver) -> None:
    def get_claim(namespace: str, name: str) -> ResourceClaim:
        found = case["claim"] and ResourceClaim.from_manifest(case["claim"])
        if not found or (found.namespace, found.name) != (namespace, name):
            raise ClaimError(f'resourceclaims.resource.k8s.io "{name}" not found')
        return found

    asking = ClaimingPod.from_manifest(case["pod"])
    answering.prepare(manager, asking, get_claim, find_driver(case, driver))


@cases("claims", "prepare")
def test_claims_are_prepared(case: Json) -> None:
    driver = FakeDriver(case)
    manager = started(case, driver)
    if case["before"] is not None and case["before"]["prepared"]:
        prepare(case, manager, driver)
        driver.calls = 0
    with pytest.raises(ClaimError) if case["error"] else nullcontext() as error:
        prepare(case, manager, driver)

    if error is not None:
        assert case["error"].removeprefix("prepare dynamic resources: ") in str(error.value)
    else:
        assert [info.state for info in manager.claims.values()] == [prepared(case["after"])]
        assert all(info.is_prepared for info in manager.claims.values())
    assert driver.calls == case["calls"]


@cases("claims", "unprepare")
def test_claims_are_unprepared(case: Json) -> None:
    driver = FakeDriver(case)
    manager = started(case, driver)
    before = prepared(case["before"]["state"])
    pod = ClaimingPod.from_manifest(case["pod"])
    with pytest.raises(ClaimError) if case["error"] else nullcontext() as error:
        answering.unprepare(manager, pod, find_driver(case, driver))

    if error is not None:
        assert case["error"].removeprefix("unprepare dynamic resources: ") in str(error.value)
    elif case["calls"]:
        assert manager.claims == {}
    else:
        left = [info.state.pod_uids for info in manager.claims.values()]
        assert left == [before.pod_uids - {pod.uid}]
    assert driver.calls == case["calls"]


@cases("claims", "devices")
def test_containers_get_the_devices_of_their_requests(case: Json) -> None:
    manager = started(case, FakeDriver(case))
    with pytest.raises(ClaimError) if case["refused"] else nullcontext():
        found = manager.cdi_devices(ClaimingPod.from_manifest(case["pod"]), case["container"])
        assert found == case["cdi"]
