"""Checkpoint files are restored, refused and written as the kubelet does, case by case."""

import json
from collections.abc import Iterable

import pytest

from bindery.nodecore.checkpoints import claims, cpu, memory
from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.cpu import restore as cpu_restore
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpusets import parse_cpus
from bindery.nodecore.errors import CheckpointError
from bindery.nodecore.features import Features
from bindery.nodecore.memory import restore as memory_restore
from bindery.nodecore.memory.state import MemoryState
from tests.nodecore.kubelettables import Json, by_container, cases
from tests.nodecore.test_kubelet_memory import blocks, states


def manager(case: Json, name: str) -> CheckpointManager:
    store = MemoryStore()
    if case["file"]:
        store.write(name, case["file"].encode())
    return CheckpointManager(store)


def features(case: Json) -> Features:
    return Features(pod_level_resource_managers=case["pod_level"])


@cases("checkpoints", "cpu")
def test_the_cpu_state_is_restored(case: Json) -> None:
    containers = {
        one: (where["podUID"], where["containerName"]) for one, where in case["containers"].items()
    }
    files = manager(case, cpu.FILE)
    if case["error"]:
        with pytest.raises(CheckpointError) as error:
            cpu_restore.load(files, case["policy"], containers, features=features(case))
        assert case["error"] in str(error.value)
        return
    found = cpu_restore.load(files, case["policy"], containers, features=features(case))
    wanted = case["state"]
    assert found == CpuState(
        parse_cpus(wanted["default"]),
        by_container(wanted["held"], parse_cpus),
        {uid: parse_cpus(cpus) for uid, cpus in wanted["pods"].items()},
    )


@cases("checkpoints", "memory")
def test_the_memory_state_is_restored(case: Json) -> None:
    files = manager(case, memory.FILE)
    if case["error"]:
        with pytest.raises(CheckpointError) as error:
            memory_restore.load(files, "static", features=features(case))
        assert case["error"] in str(error.value)
        return
    found = memory_restore.load(files, "static", features=features(case))
    wanted = case["state"]
    assert found == MemoryState(
        states(wanted["machine"]),
        by_container(wanted["held"], blocks),
        {uid: blocks(of) for uid, of in wanted["pods"].items()},
    )


def prepared(found: Json) -> PreparedClaim:
    return PreparedClaim(
        found["ClaimUID"],
        found["ClaimName"],
        found["Namespace"],
        frozenset(found["PodUIDs"] or ()),
        {
            driver: devices(state["Devices"] or ())
            for driver, state in (found["DriverState"] or {}).items()
        },
    )


def devices(found: Iterable[Json]) -> tuple[ClaimDevice, ...]:
    return tuple(
        ClaimDevice(
            one["PoolName"],
            one["DeviceName"],
            one["ShareID"],
            as_tuple(one["RequestNames"]),
            as_tuple(one["CDIDeviceIDs"]),
        )
        for one in found
    )


def as_tuple(found: list[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(found)


@cases("checkpoints", "claims")
def test_prepared_claims_are_restored(case: Json) -> None:
    if case["error"]:
        with pytest.raises(CheckpointError) as error:
            claims.decode(case["file"].encode())
        assert str(error.value) in case["error"]
    elif case["file"]:
        found = claims.decode(case["file"].encode())
        assert list(found or ()) == [prepared(one) for one in case["claims"] or ()]


@cases("checkpoints", "claims_written")
def test_prepared_claims_are_written(case: Json) -> None:
    found = claims.encode(tuple(prepared(one) for one in case["claims"] or ()))

    assert json.loads(found) == json.loads(case["file"])
    assert found == case["file"].encode()
