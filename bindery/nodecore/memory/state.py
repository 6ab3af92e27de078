"""What the memory manager records: the memory of each NUMA node and the blocks of containers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bindery.nodecore.numamemory import Blocks, NumaNodeState


@dataclass(frozen=True)
class MemoryState:
    """All that the memory manager records.

    Attributes:
        machine: NUMA node -> its state; empty before the policy has started.
        containers: pod UID -> container name -> its blocks.
        pods: pod UID -> its blocks, for pods whose memory is managed as a whole.
    """

    machine: Mapping[int, NumaNodeState] = field(default_factory=dict)
    containers: Mapping[str, Mapping[str, Blocks]] = field(default_factory=dict)
    pods: Mapping[str, Blocks] = field(default_factory=dict)

    def blocks(self, pod_uid: str, container: str) -> Blocks | None:
        """Return the blocks of a container, None when none are recorded."""
        return self.containers.get(pod_uid, {}).get(container)

    def with_blocks(self, pod_uid: str, container: str, blocks: Blocks) -> "MemoryState":
        """Return the state in which the container has `blocks`."""
        inner = {**self.containers.get(pod_uid, {}), container: blocks}
        return replace(self, containers={**self.containers, pod_uid: inner})

    def without(self, pod_uid: str, container: str) -> "MemoryState":
        """Return the state without the container; a pod without containers goes too."""
        inner = {
            name: blocks
            for name, blocks in self.containers.get(pod_uid, {}).items()
            if name != container
        }
        others = {uid: found for uid, found in self.containers.items() if uid != pod_uid}
        return replace(self, containers={**others, pod_uid: inner} if inner else others)
