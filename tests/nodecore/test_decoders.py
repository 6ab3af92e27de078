"""Decoders return the content of a file, or raise an error of nodecore, for any file."""

import json
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore import checkpointfiles
from bindery.nodecore.checkpoints import (
    allocations,
    claims,
    cpu,
    devices,
    gotext,
    memory,
)
from bindery.nodecore.checkpoints.allocations import AllocatedPod, Requirements
from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.checkpoints.devices import DeviceCheckpoint, DeviceEntry
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.cpu import restore as cpu_restore
from bindery.nodecore.cpusets import CpuSetError, parse_cpus
from bindery.nodecore.errors import NodeCoreError, RestoreError
from bindery.nodecore.features import Features
from bindery.nodecore.memory import restore as memory_restore
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState

Decode = Callable[[bytes], object]


def loaded(name: str, load: Callable[..., object]) -> Decode:
    """Return a decoder that restores a whole manager, with and without the newest version."""

    def decode(blob: bytes) -> object:
        store = MemoryStore()
        store.write(name, blob)
        return load(CheckpointManager(store), features=Features(pod_level_resource_managers=True))

    return decode


TABLE = MemoryTable(10, 2, 8, 3, 5)
BLOCK = Block((0,), "memory", 3)
FILES: dict[str, bytes] = {
    "cpu-1": cpu.CpuCheckpointV1("static", "0-3", {"id": "4"}).encode(),
    "cpu-2": cpu.CpuCheckpointV2("static", "0-3", {"pod": {"app": "4"}}).encode(),
    "cpu-3": cpu.CpuCheckpointV3(
        "static", "0-3", {"pod": {"app": "4"}}, {"pod": parse_cpus("4")}
    ).encode(),
    "memory": memory.MemoryCheckpoint(
        "Static",
        {0: NumaNodeState(1, {"memory": TABLE}, (0,))},
        {"pod": {"app": (BLOCK,)}},
        {"pod": (BLOCK,)},
    ).encode(),
    "devices": DeviceCheckpoint(
        (DeviceEntry("pod", "app", "v.com/gpu", {0: ("gpu-0",)}, b"answer"),),
        {"v.com/gpu": ("gpu-0",)},
    ).encode(),
    "claims": claims.encode(
        (
            PreparedClaim(
                "uid",
                "claim",
                "default",
                frozenset({"pod"}),
                {"driver": (ClaimDevice("pool", "gpu-0", "share", ("gpu",), ("cdi",)),)},
            ),
        )
    ),
    "allocations": allocations.encode(
        {"pod": AllocatedPod({"app": Requirements({"cpu": "1"})}, Requirements())}
    ),
}

DECODERS: dict[str, Decode] = {
    "cpu-1": cpu.decode_v1,
    "cpu-2": cpu.decode_v2,
    "cpu-3": cpu.decode_v3,
    "memory-1": memory.decode_v1,
    "memory-2": memory.decode_v2,
    "devices": devices.decode,
    "claims": claims.decode,
    "allocations": allocations.decode,
    "checkpoint files": checkpointfiles.read,
    "convert": lambda blob: checkpointfiles.convert(blob, 2, {}),
    "cpu manager": loaded(
        cpu.FILE, lambda files, features: cpu_restore.load(files, "static", {}, features=features)
    ),
    "memory manager": loaded(
        memory.FILE, lambda files, features: memory_restore.load(files, "Static", features=features)
    ),
}

every_decoder = pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("\ud800")
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


def tried(decode: Decode, blob: bytes) -> None:
    with suppress(NodeCoreError):
        decode(blob)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-+-3", 'strconv.Atoi: parsing "+-3": invalid syntax'),
        ("1_0", 'strconv.Atoi: parsing "1_0": invalid syntax'),
        ("3-1", 'invalid range "3-1" (3 > 1)'),
        ("0-99999999999", 'invalid range "0-99999999999" (99999999999 > 65535)'),
        ("65536", 'invalid range "65536" (65536 > 65535)'),
    ],
)
def test_a_malformed_list_of_cpus_prevents_the_start(text: str, message: str) -> None:
    with pytest.raises(CpuSetError, match=re.escape(message)):
        parse_cpus(text)
    store = MemoryStore()
    store.write(cpu.FILE, cpu.CpuCheckpointV2("static", text, {}).encode())
    with pytest.raises(RestoreError, match=re.escape(f'could not parse default cpu set "{text}"')):
        cpu_restore.load(CheckpointManager(store), "static", {})


@every_decoder
@given(blob=st.binary(max_size=60))
def test_any_bytes_are_refused(decode: Decode, blob: bytes) -> None:
    tried(decode, blob)


@every_decoder
@given(name=st.sampled_from(sorted(FILES)), part=st.floats(0, 1))
def test_truncated_files_are_refused(decode: Decode, name: str, part: float) -> None:
    blob = FILES[name]

    tried(decode, blob[: int(len(blob) * part)])


@every_decoder
@given(data=st.data())
def test_files_with_other_values_are_refused(decode: Decode, data: st.DataObject) -> None:
    content: Any = json.loads(FILES[data.draw(st.sampled_from(sorted(FILES)))])
    inner = next((key for key in ("Data", "data") if isinstance(content.get(key), str)), None)
    changed = changed_somewhere(json.loads(content[inner]) if inner else content, data)
    if inner:
        text = json.dumps(changed)
        crc, fnv = zlib.crc32(text.encode()), gotext.fnv1a(f"(string){text}")
        changed = (
            {"Data": text, "Checksum": crc} if inner == "Data" else {"data": text, "checksum": fnv}
        )
    elif isinstance(changed, dict) and data.draw(st.booleans()):
        changed["checksum"] = 0  # some versions accept it, so that the content counts

    tried(decode, json.dumps(changed).encode())


def changed_somewhere(value: Any, data: st.DataObject) -> Any:
    """Return a JSON value with one part of it replaced."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: changed_somewhere(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        return [changed_somewhere(value[0], data), *value[1:]]
    return data.draw(values)


@every_decoder
def test_files_that_are_nested_too_deeply_are_refused(decode: Decode) -> None:
    tried(decode, b'{"Data":' * 100_000)
    tried(decode, b"[" * 100_000)


@pytest.mark.parametrize("entries", ["1", '"0-3"', "[]", '["0-3"]', '{"uid":1}', "true"])
def test_entries_of_another_type_are_refused(entries: str) -> None:
    blob = f'{{"policyName":"static","defaultCpuSet":"0-3","entries":{entries},"checksum":1}}'

    with pytest.raises(NodeCoreError):
        checkpointfiles.read(blob.encode())
