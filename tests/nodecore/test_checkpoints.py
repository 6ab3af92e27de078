"""Checkpoint files have the kubelet's bytes and checksums, and are read as the kubelet does."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.checkpoints import allocations, claims, devices, fnv
from bindery.nodecore.checkpoints import cpu as cpu_files
from bindery.nodecore.checkpoints import memory as memory_files
from bindery.nodecore.checkpoints.store import CheckpointManager, DirectoryStore, MemoryStore
from bindery.nodecore.cpu import restore as cpu_restore
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpusets import format_cpus, parse_cpus
from bindery.nodecore.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    RestoreError,
)
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.memory import restore as memory_restore
from bindery.nodecore.memory.state import MemoryState
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState

POD_LEVEL = Features(pod_level_resource_managers=True)
ENTRIES = {"pod": {"container1": "4-6", "container2": "1-3"}}
STATE = CpuState(
    parse_cpus("1-3"), {"pod": {"container1": parse_cpus("4-6"), "container2": parse_cpus("1-3")}}
)
CONTAINER_IDS = {"containerID1": ("pod", "container1"), "containerID2": ("pod", "container2")}

CPU_ENTRIES_V1 = {"containerID1": "4-6", "containerID2": "1-3"}


def file(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def cpu_file(**changes: Any) -> bytes:
    return file({"policyName": "none", "defaultCPUSet": "1-3", "entries": {}, **changes})


def manager(**blobs: bytes) -> CheckpointManager:
    store = MemoryStore()
    store.blobs.update(blobs)
    return CheckpointManager(store)


def load_cpu(blob: bytes, features: Features = DEFAULT) -> CpuState:
    files = manager(cpu_manager_state=blob)
    return cpu_restore.load(files, "none", CONTAINER_IDS, features=features)


@pytest.mark.parametrize(
    ("blob", "features"),
    [
        (cpu_file(entries=ENTRIES, checksum=3610638499), Features()),
        (cpu_file(entries=ENTRIES, checksum=3610638499), POD_LEVEL),
        (cpu_file(entries=CPU_ENTRIES_V1, checksum=3680390589), Features()),
        (cpu_file(entries=CPU_ENTRIES_V1, checksum=3680390589), POD_LEVEL),
        (cpu_file(entries=ENTRIES, checksum=0), Features()),
    ],
)
def test_every_version_of_the_cpu_state_is_read(blob: bytes, features: Features) -> None:
    assert load_cpu(blob, features) == STATE


def test_the_third_version_has_the_cpus_of_pods() -> None:
    blob = cpu_file(entries=ENTRIES, podEntries={"pod": {"cpuSet": "4-6"}}, checksum=2649431787)

    assert load_cpu(blob, POD_LEVEL).pods == {"pod": parse_cpus("4-6")}
    with pytest.raises(RestoreError, match="cannot unmarshal object into Go struct field"):
        load_cpu(blob)  # without the feature it counts as corrupt, and as no version 1


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (cpu_file(defaultCPUSet="4-6", checksum=1337), "checkpoint is corrupted"),
        (b"{", "unexpected end of JSON input"),
        (
            cpu_file(policyName="other", checksum=1394507217),
            'configured policy "none" differs from state checkpoint policy "other"',
        ),
        (
            cpu_file(defaultCPUSet="1.3", checksum=3021697696),
            'could not parse default cpu set "1.3": strconv.Atoi: parsing "1.3": invalid syntax',
        ),
        (
            cpu_file(
                entries={"pod": {"container1": "4-6", "container2": "asd"}}, checksum=962272150
            ),
            'could not parse cpuset "asd" for container "container2" in pod "pod"',
        ),
        (
            cpu_file(entries={"unknown": "4-6"}, checksum=0),
            "containerID 'unknown' not found in initial containers list",
        ),
    ],
)
def test_an_invalid_cpu_state_prevents_the_start(blob: bytes, message: str) -> None:
    with pytest.raises(RestoreError) as error:
        load_cpu(blob)

    assert message in str(error.value)
    assert 'delete the CPU manager checkpoint file "cpu_manager_state"' in str(error.value)


def test_a_checksum_of_the_first_version_without_entries_is_accepted() -> None:
    blob = file({"policyName": "none", "defaultCPUSet": "1-3", "checksum": 1694838852})

    assert load_cpu(blob) == CpuState(parse_cpus("1-3"))


def test_without_a_file_the_empty_cpu_state_is_written() -> None:
    store = MemoryStore()

    assert cpu_restore.load(CheckpointManager(store), "static", {}) == CpuState()
    written = json.loads(store.blobs["cpu_manager_state"])
    assert (written["policyName"], written["defaultCpuSet"]) == ("static", "")


def test_the_cpu_state_is_written_as_the_kubelet_writes_it() -> None:
    assert cpu_restore.encode("none", STATE) == (
        b'{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6",'
        b'"container2":"1-3"}},"checksum":3610638499}'
    )


MACHINE = {
    0: NumaNodeState(
        assignments=0, memory={"memory": MemoryTable(2048, 512, 1536, 512, 1024)}, cells=()
    )
}
BLOCKS = (Block((0,), "memory", 512),)


def memory_file(**changes: Any) -> bytes:
    table = {"total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512}
    node = {"numberOfAssignments": 0, "memoryMap": {"memory": {**table, "free": 1024}}, "cells": []}
    block = {"numaAffinity": [0], "type": "memory", "size": 512}
    return file(
        {
            "policyName": "static",
            "machineState": {"0": node},
            "entries": {"pod": {"container1": [block]}},
            **changes,
        }
    )


def load_memory(blob: bytes, features: Features = DEFAULT) -> MemoryState:
    files = manager(memory_manager_state=blob)
    return memory_restore.load(files, "static", features=features)


@pytest.mark.parametrize("features", [Features(), POD_LEVEL])
def test_the_memory_state_is_read(features: Features) -> None:
    state = load_memory(memory_file(checksum=4215593881), features)

    assert state == MemoryState(MACHINE, {"pod": {"container1": BLOCKS}})


def test_the_second_version_has_the_memory_of_pods() -> None:
    block = {"numaAffinity": [0], "type": "memory", "size": 512}
    blob = memory_file(podEntries={"pod": {"memoryBlocks": [block]}}, checksum=1278640530)

    assert load_memory(blob, POD_LEVEL).pods == {"pod": BLOCKS}
    with pytest.raises(RestoreError, match="checkpoint is corrupted, please drain this node"):
        load_memory(blob)


def test_a_memory_state_of_another_policy_prevents_the_start() -> None:
    blob = memory_files.MemoryCheckpoint("None", {}, {}).encode()

    with pytest.raises(RestoreError, match='policy "static" differs from state checkpoint policy'):
        load_memory(blob)


CLAIM_FILE = (
    b'{"Data":"{\\"kind\\":\\"DRACheckpoint\\",\\"apiVersion\\":'
    b'\\"checkpoint.dra.kubelet.k8s.io/v1\\",\\"ClaimInfoStateList\\":[{\\"ClaimUID\\":'
    b'\\"067798be-454e-4be4-9047-1aa06aea63f7\\",\\"ClaimName\\":\\"example\\",\\"Namespace\\":'
    b'\\"default\\",\\"PodUIDs\\":{\\"139cdb46-f989-4f17-9561-ca10cfb509a6\\":{}},'
    b'\\"DriverState\\":{\\"test-driver.cdi.k8s.io\\":{\\"Devices\\":[{\\"PoolName\\":'
    b'\\"worker-1\\",\\"DeviceName\\":\\"dev-1\\",\\"ShareID\\":null,\\"RequestNames\\":'
    b'[\\"test request\\"],\\"CDIDeviceIDs\\":[\\"example.com/example=cdi-example\\"]}]}}}]}",'
    b'"Checksum":2570581864}'
)


def test_prepared_claims_are_read_and_written_with_the_same_bytes() -> None:
    found = claims.decode(CLAIM_FILE)

    assert found is not None
    assert [claim.name for claim in found] == ["example"]
    assert claims.encode(found) == CLAIM_FILE
    with pytest.raises(CorruptCheckpointError):
        claims.decode(CLAIM_FILE.replace(b"2570581864", b"1"))


def test_allocations_of_pods_are_read_and_written_with_the_same_bytes() -> None:
    kubelets = (
        b'{"data":"{\\"entries\\":{\\"pod1\\":{\\"ContainerResources\\":{\\"container1\\":'
        b'{\\"requests\\":{\\"cpu\\":\\"1Ki\\",\\"memory\\":\\"1Ki\\"}}}}}}","checksum":1178570812}'
    )
    found = allocations.decode(kubelets)

    amounts = {"cpu": "1Ki", "memory": "1Ki"}
    assert found == {
        "pod1": allocations.AllocatedPod({"container1": allocations.Requirements({}, amounts)})
    }
    assert allocations.decode(allocations.encode(found)) == found
    with pytest.raises(CorruptCheckpointError):
        allocations.decode(kubelets.replace(b"1178570812", b"0"))


def test_devices_survive_writing_and_reading() -> None:
    entry = devices.DeviceEntry(
        "uid", "ctr", "vendor/gpu", {0: ("a", "b"), -1: ("c",)}, b"\x12\x34"
    )
    checkpoint = devices.DeviceCheckpoint((entry,), {"vendor/gpu": ("a", "b", "c", "d")})
    blob = checkpoint.encode()

    assert devices.decode(blob) == checkpoint
    assert b'"DeviceIDs":{"-1":["c"],"0":["a","b"]},"AllocResp":"EjQ="' in blob
    with pytest.raises(CorruptCheckpointError):
        devices.decode(blob.replace(b"vendor/gpu", b"vendor/cpu"))


def test_names_in_files_are_escaped_as_in_go() -> None:
    state = CpuState(parse_cpus("0"), {"<pod>&": {"c\u2028": parse_cpus("1")}})

    assert b'{"\\u003cpod\\u003e\\u0026":{"c\\u2028":"1"}}' in cpu_restore.encode("static", state)
    assert load_static(cpu_restore.encode("static", state)) == state


def load_static(blob: bytes, features: Features = DEFAULT) -> CpuState:
    files = manager(cpu_manager_state=blob)
    return cpu_restore.load(files, "static", {}, features=features)


names = st.text(min_size=1, max_size=8)
cpu_sets = st.frozensets(st.integers(0, 300), max_size=20)
nested = st.dictionaries(
    names, st.dictionaries(names, cpu_sets, min_size=1, max_size=3), max_size=3
)


@given(cpu_sets, nested, st.dictionaries(names, cpu_sets, max_size=3))
def test_a_cpu_state_survives_saving_and_loading(
    default: frozenset[int],
    containers: dict[str, dict[str, frozenset[int]]],
    pods: dict[str, frozenset[int]],
) -> None:
    state = CpuState(default, containers, pods)

    assert load_static(cpu_restore.encode("static", state, features=POD_LEVEL), POD_LEVEL) == state


@given(cpu_sets)
def test_lists_of_cpus_survive_writing_and_reading(cpus: frozenset[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


def test_the_manager_creates_gets_lists_and_removes(tmp_path: Path) -> None:
    files = CheckpointManager(DirectoryStore(tmp_path / "state"))
    (tmp_path / "state" / ".unfinished").write_bytes(b"half")

    files.create("cpu_manager_state", b"one")
    files.create("cpu_manager_state", b"two")

    assert files.list() == ["cpu_manager_state"]
    assert files.get("cpu_manager_state") == b"two"
    files.remove("cpu_manager_state")
    files.remove("cpu_manager_state")
    with pytest.raises(CheckpointNotFoundError, match="checkpoint is not found"):
        files.get("cpu_manager_state")


def test_what_a_killed_process_has_begun_is_removed_or_replaced(tmp_path: Path) -> None:
    state = tmp_path / "state"
    store = DirectoryStore(state)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: None)  # killed before it
        store.write("cpu_manager_state", b"longer")
        store.write("other", b"one")
    assert len(list(state.iterdir())) == 2

    store.write("cpu_manager_state", b"two")
    assert [one.name for one in state.iterdir() if one.name.startswith(".")] == [".other.new"]
    assert store.read("cpu_manager_state") == b"two"
    store.remove_unfinished()

    assert [one.name for one in state.iterdir()] == ["cpu_manager_state"]


@pytest.mark.parametrize("key", ["/id1", ".id1", "   ", "___", "", "a" * 251, "id1-"])
def test_keys_that_the_kubelet_refuses_are_refused(key: str) -> None:
    with pytest.raises(CheckpointError, match="invalid key"):
        manager().create(key, b"")


def test_the_first_version_is_written_with_the_kubelets_checksum() -> None:
    checkpoint = cpu_files.CpuCheckpointV1("none", "1-3", CPU_ENTRIES_V1)

    assert checkpoint.checksum() == 3680390589


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 4096, 70_000])
def test_the_vectorised_checksum_equals_the_plain_loop(size: int) -> None:
    data = Random(size).randbytes(size)
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    assert fnv.fnv1a(data) == value
