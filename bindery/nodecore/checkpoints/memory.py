"""The formats of `memory_manager_state`: versions 1 and 2.

Version 2 adds the memory of whole pods; kubelets write it only with the feature
PodLevelResourceManagers. Both take their checksum over an object called MemoryManagerCheckpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bindery.nodecore.checkpoints import gotext
from bindery.nodecore.checkpoints.gotext import Json
from bindery.nodecore.errors import CorruptCheckpointError
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState

FILE: Final = "memory_manager_state"

MachineState = Mapping[int, NumaNodeState]
Blocks = tuple[Block, ...]
Entries = Mapping[str, Mapping[str, Blocks]]
"""Pod UID -> container name -> its blocks."""

_NAME: Final = "MemoryManagerCheckpoint"
_V1: Final = "MemoryManagerCheckpointV1"


@dataclass(frozen=True)
class MemoryCheckpoint:
    """The content of the file.

    Attributes:
        machine: NUMA node -> its state.
        entries: pod UID -> container name -> its blocks of memory.
        pod_entries: pod UID -> its blocks; None in version 1.
    """

    policy: str
    machine: MachineState | None
    entries: Entries | None
    pod_entries: Mapping[str, Blocks] | None = None

    def checksum(self, type_name: str = _NAME) -> int:
        """Return the checksum of the content."""
        fields = [
            ("PolicyName", "string", self.policy),
            ("MachineState", "state.NUMANodeMap", _printed_machine(self.machine)),
            ("Entries", "state.ContainerMemoryAssignments", _printed_entries(self.entries)),
        ]
        if self.pod_entries is not None:
            pods = {uid: _printed_pod(blocks) for uid, blocks in self.pod_entries.items()}
            fields.append(("PodEntries", "state.PodMemoryAssignments", gotext.mapping(pods)))
        fields.append(("Checksum", "checksum.Checksum", "0"))
        return gotext.fnv1a(f"(*state.{type_name}){gotext.struct(*fields)}")

    def encode(self) -> bytes:
        """Return the file with its checksum."""
        content: Json = {"policyName": self.policy, "machineState": _written(self.machine)}
        if self.entries:
            content["entries"] = {
                uid: {
                    name: [_block_json(block) for block in blocks]
                    for name, blocks in sorted(containers.items())
                }
                for uid, containers in sorted(self.entries.items())
            }
        if self.pod_entries:
            content["podEntries"] = {
                uid: {"memoryBlocks": [_block_json(block) for block in blocks]} if blocks else {}
                for uid, blocks in sorted(self.pod_entries.items())
            }
        content["checksum"] = self.checksum()
        return gotext.to_json(content)


def decode_v1(blob: bytes, *, pod_level_managers: bool = False) -> MemoryCheckpoint:
    """Return the checkpoint of version 1 in `blob`. A checksum of 0 is accepted.

    Without the feature PodLevelResourceManagers, a checksum over an object called
    MemoryManagerCheckpointV1 is accepted too.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    content = gotext.from_json(blob)
    checkpoint = _decoded(content, _V1)
    stored = gotext.field(content, "checksum", int, _V1, 0)
    if stored == 0 or (not pod_level_managers and stored == checkpoint.checksum(_V1)):
        return checkpoint
    return _verified(checkpoint, stored)


def decode_v2(blob: bytes) -> MemoryCheckpoint:
    """Return the checkpoint of version 2 in `blob`.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    content = gotext.from_json(blob)
    found = gotext.field(content, "podEntries", dict, _NAME, {}) or {}
    pods = {
        uid: _blocks(gotext.field(entry, "memoryBlocks", list, "PodEntry", []))
        for uid, entry in found.items()
    }
    first = _decoded(content, _NAME)
    checkpoint = MemoryCheckpoint(first.policy, first.machine, first.entries, pods)
    return _verified(checkpoint, gotext.field(content, "checksum", int, _NAME, 0))


def _verified(checkpoint: MemoryCheckpoint, stored: int) -> MemoryCheckpoint:
    actual = checkpoint.checksum()
    if stored != actual:
        raise CorruptCheckpointError(stored, actual)
    return checkpoint


def _decoded(content: Json, place: str) -> MemoryCheckpoint:
    machine = gotext.field(content, "machineState", dict, place, {})
    entries = gotext.field(content, "entries", dict, place, {})
    return MemoryCheckpoint(
        policy=gotext.field(content, "policyName", str, place, ""),
        machine=None
        if machine is None
        else {_node_id(key): _node(state) for key, state in machine.items()},
        entries=None
        if entries is None
        else {
            uid: {name: _blocks(blocks) for name, blocks in _object(containers, place).items()}
            for uid, containers in entries.items()
        },
    )


def _object(value: Any, place: str) -> Json:
    if not isinstance(value, dict):
        raise gotext.wrong_type(value, f"{place}.entries", "map[string][]state.Block")
    return value


def _node_id(key: str) -> int:
    try:
        return int(key)
    except ValueError as error:
        raise gotext.wrong_type(key, "machineState", "int") from error


def _node(state: Any) -> NumaNodeState:
    tables = gotext.field(state, "memoryMap", dict, "NUMANodeState", {}) or {}
    return NumaNodeState(
        assignments=gotext.field(state, "numberOfAssignments", int, "NUMANodeState", 0),
        memory={resource: _table(table) for resource, table in tables.items()},
        cells=_nodes(state, "cells", "NUMANodeState"),
    )


def _nodes(container: Json, name: str, place: str) -> tuple[int, ...]:
    return gotext.items(gotext.field(container, name, list, place, []), int, f"{place}.{name}")


def _table(table: Any) -> MemoryTable:
    return MemoryTable(
        total=_bytes(table, "total"),
        system_reserved=_bytes(table, "systemReserved"),
        allocatable=_bytes(table, "allocatable"),
        reserved=_bytes(table, "reserved"),
        free=_bytes(table, "free"),
    )


def _bytes(table: Json, name: str) -> int:
    amount: int = gotext.field(table, name, int, "MemoryTable", 0)
    if not 0 <= amount < 2**64:
        raise gotext.wrong_type(amount, f"MemoryTable.{name}", "uint64")
    return amount


def _blocks(found: Any) -> Blocks:
    if not isinstance(found, list) or not all(isinstance(block, dict) for block in found):
        raise gotext.wrong_type(found, "entries", "[]state.Block")
    return tuple(
        Block(
            numa_nodes=_nodes(block, "numaAffinity", "Block"),
            resource=gotext.field(block, "type", str, "Block", ""),
            size=_bytes(block, "size"),
        )
        for block in found
    )


def _written(machine: MachineState | None) -> Json | None:
    if machine is None:
        return None
    nodes = {str(node): state for node, state in machine.items()}
    return {node: _node_json(nodes[node]) for node in sorted(nodes)}


def _node_json(state: NumaNodeState) -> Json:
    return {
        "numberOfAssignments": state.assignments,
        "memoryMap": {
            resource: {
                "total": table.total,
                "systemReserved": table.system_reserved,
                "allocatable": table.allocatable,
                "reserved": table.reserved,
                "free": table.free,
            }
            for resource, table in sorted(state.memory.items())
        },
        "cells": list(state.cells),
    }


def _block_json(block: Block) -> Json:
    return {"numaAffinity": list(block.numa_nodes), "type": block.resource, "size": block.size}


def _printed_machine(machine: MachineState | None) -> str:
    if machine is None:
        return gotext.NIL
    return gotext.mapping({node: f"<*>{_printed_node(state)}" for node, state in machine.items()})


def _printed_node(state: NumaNodeState) -> str:
    tables = {resource: f"<*>{_printed_table(table)}" for resource, table in state.memory.items()}
    return gotext.struct(
        ("NumberOfAssignments", "int", str(state.assignments)),
        ("MemoryMap", "map[v1.ResourceName]*state.MemoryTable", gotext.mapping(tables)),
        ("Cells", "[]int", gotext.sequence(state.cells)),
    )


def _printed_table(table: MemoryTable) -> str:
    return gotext.struct(
        ("TotalMemSize", "uint64", str(table.total)),
        ("SystemReserved", "uint64", str(table.system_reserved)),
        ("Allocatable", "uint64", str(table.allocatable)),
        ("Reserved", "uint64", str(table.reserved)),
        ("Free", "uint64", str(table.free)),
    )


def _printed_entries(entries: Entries | None) -> str:
    if entries is None:
        return gotext.NIL
    return gotext.mapping(
        {
            uid: gotext.mapping({name: _printed_blocks(blocks) for name, blocks in inner.items()})
            for uid, inner in entries.items()
        }
    )


def _printed_pod(blocks: Blocks) -> str:
    return gotext.struct(("MemoryBlocks", "[]state.Block", _printed_blocks(blocks)))


def _printed_blocks(blocks: Blocks) -> str:
    return gotext.sequence(
        gotext.struct(
            ("NUMAAffinity", "[]int", gotext.sequence(block.numa_nodes)),
            ("Type", "v1.ResourceName", block.resource),
            ("Size", "uint64", str(block.size)),
        )
        for block in blocks
    )
