"""The same questions as the Go program `kubelet` answers, answered by bindery.nodecore."""

import base64
from collections.abc import Mapping
from typing import Any

from bindery.api import quantity
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.cpu import manager as cpu_manager
from bindery.nodecore.cpu.manager import CpuManager
from bindery.nodecore.cpu.topology import discover
from bindery.nodecore.cpusets import format_cpus, parse_cpus
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.features import Features
from bindery.nodecore.machine import Core, HugePages, Machine, NumaNode
from bindery.nodecore.masks import mask_of, nodes_of
from bindery.nodecore.memory import manager as memory_manager
from bindery.nodecore.memory.manager import MemoryManager
from bindery.nodecore.numamemory import Block
from bindery.nodecore.pods import Pod, resources
from bindery.nodecore.topology import options as topology_options
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.hints import Hint
from bindery.nodecore.topology.manager import TopologyManager
from bindery.nodecore.topology.numa import numa_info

Json = dict[str, Any]

NOTHING: Json = {
    "admit": False,
    "reason": "",
    "message": "",
    "error": "",
    "default": "",
    "cpus": None,
    "machine": None,
    "blocks": None,
}
"""The answer to a step that does nothing."""


def answer(question: Json) -> Json:
    """Return the answer to a question about hints or about a node."""
    if question.get("merge"):
        return answer_merge(question["merge"])
    return PythonNode(question).answer()


def answer_merge(asked: Json) -> Json:
    options = topology_options.parse(asked["options"])
    nodes = [
        NumaNode(id=node, distances=asked["distances"].get(node, ())) for node in asked["nodes"]
    ]
    info = numa_info(nodes, with_distances=options.prefer_closest)
    providers = [
        None if found is None else {name: _hints(hints) for name, hints in found.items()}
        for found in asked["providers"]
    ]
    merged = policies.merge_hints(asked["policy"], info, providers, options)
    mask = merged.hint.mask
    return {
        "hint": {
            "nodes": None if mask is None else list(nodes_of(mask)),
            "preferred": merged.hint.preferred,
        },
        "admit": merged.admit,
    }


def _hints(hints: list[Json] | None) -> list[Hint] | None:
    if hints is None:
        return None
    return [
        Hint(None if one["nodes"] is None else mask_of(one["nodes"]), preferred=one["preferred"])
        for one in hints
    ]


class PythonNode:
    """A node whose managers are nodecore's."""

    def __init__(self, question: Json) -> None:
        self._asked = question["node"]
        gates = question["gates"]
        self._features = Features(
            pod_level_resource_managers=gates["PodLevelResourceManagers"],
            cpu_policy_alpha_options=gates["CPUManagerPolicyAlphaOptions"],
        )
        self._machine = _machine(self._asked["machine"])
        self.store = MemoryStore()
        for name, blob in (self._asked.get("files") or {}).items():
            self.store.write(name, base64.b64decode(blob))
        self._pods = {
            pod["metadata"]["uid"]: Pod.from_manifest(pod) for pod in self._asked.get("pods") or ()
        }

    def active_pods(self) -> list[Pod]:
        return list(self._pods.values())

    def sources_ready(self) -> bool:
        return True

    def start(self) -> None:
        asked, machine = self._asked, self._machine
        self.topology = TopologyManager(
            machine.nodes,
            asked["topologyPolicy"],
            asked["topologyScope"],
            topology_options.parse(asked["topologyOptions"]),
            self._features,
        )
        cpu_policy = cpu_manager.configure(
            asked["cpuPolicy"],
            asked["cpuOptions"],
            discover(machine),
            quantity.parse(asked["nodeReserved"]["cpu"], "cpu"),
            parse_cpus(asked["reservedCPUs"]),
            asked["topologyPolicy"],
            self._features,
        )
        memory_policy = memory_manager.configure(
            asked["memoryPolicy"],
            machine,
            resources(asked["nodeReserved"]),
            [(one["numaNode"], resources(one["limits"])) for one in asked["reservedMemory"]],
            self._features,
        )
        files = CheckpointManager(self.store)
        self.cpu = CpuManager(cpu_policy, self, self.topology, files, self._features)
        self.memory = MemoryManager(memory_policy, self, self.topology, files, self._features)
        containers = {
            key: (value[0], value[1]) for key, value in (asked.get("containers") or {}).items()
        }
        self.cpu.start(containers)
        if cpu_policy is not None:
            self.cpu.reconcile({}, lambda _id, _cpus: None)
        self.memory.start(containers)
        self.topology.add_provider(self.cpu)
        self.topology.add_provider(self.memory)

    def answer(self) -> Json:
        try:
            self.start()
        except NodeCoreError as error:
            return {"error": str(error), "steps": None, "files": None}
        steps: list[Json] = []
        for step in self._asked["steps"]:
            if step.get("restart"):
                try:
                    self.start()
                except NodeCoreError as error:
                    steps.append({**NOTHING, "error": str(error)})
                    break
            steps.append({**NOTHING, **self.do(step), **self.describe()})
        files = ("cpu_manager_state", "memory_manager_state")
        return {"error": "", "steps": steps, "files": {name: self._file(name) for name in files}}

    def do(self, step: Json) -> Json:
        result: Json = {}
        if "admit" in step:
            pod = Pod.from_manifest(step["admit"])
            self._pods[pod.uid] = pod
            done = self.topology.admit(pod)
            result = {"admit": done.admit, "reason": done.reason, "message": done.message}
            if not done.admit:
                del self._pods[pod.uid]
        elif "gone" in step:
            self._pods.pop(step["gone"], None)
        elif "create" in step:
            self._create(step["create"])
        elif "stop" in step:
            self.topology.remove_container(step["stop"])
            self.cpu.remove_container(step["stop"])
            self.memory.remove_container(step["stop"])
        return result

    def _create(self, created: Json) -> None:
        pod = self._pods.get(created["pod"])
        for container in pod.all_containers if pod else ():
            if container.name == created["name"] and pod is not None:
                self.cpu.add_container(pod, container, created["id"])
                self.memory.add_container(pod, container, created["id"])
                self.topology.add_container(pod, container, created["id"])

    def describe(self) -> Json:
        cpu, memory = self.cpu.state, self.memory.state
        return {
            "default": format_cpus(cpu.default),
            "cpus": {
                uid: {name: format_cpus(cpus) for name, cpus in inner.items()}
                for uid, inner in cpu.containers.items()
            },
            "machine": {
                str(node): {
                    "numberOfAssignments": state.assignments,
                    "cells": list(state.cells),
                    "memoryMap": {
                        name: {
                            "total": table.total,
                            "systemReserved": table.system_reserved,
                            "allocatable": table.allocatable,
                            "reserved": table.reserved,
                            "free": table.free,
                        }
                        for name, table in state.memory.items()
                    },
                }
                for node, state in memory.machine.items()
            },
            "blocks": {
                uid: {name: [_block(one) for one in blocks] for name, blocks in inner.items()}
                for uid, inner in memory.containers.items()
            },
        }

    def _file(self, name: str) -> str:
        return base64.b64encode(self.store.blobs[name]).decode()


def _block(block: Block) -> Json:
    return {"numaAffinity": list(block.numa_nodes), "type": block.resource, "size": block.size}


def _machine(asked: Mapping[str, Any]) -> Machine:
    return Machine(
        tuple(
            NumaNode(
                id=node["id"],
                memory_bytes=node["memory"],
                distances=tuple(node["distances"]),
                huge_pages=tuple(
                    HugePages(pages["sizeKiB"], pages["count"]) for pages in node["hugePages"]
                ),
                cores=tuple(
                    Core(core["socket"], tuple(core["threads"]), core["uncore"])
                    for core in node["cores"]
                ),
            )
            for node in asked["nodes"]
        )
    )
