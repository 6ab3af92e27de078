"""A real kubelet, read from its checkpoint files and its pods, for reports about its node. Pure.

The files keep the resources of ended pods until the kubelet admits another pod. So resources of
pods that are not in the given list count as free.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bindery.nodeagent.hardware import HollowMachine
from bindery.nodecore.checkpoints import cpu, memory
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.masks import mask_of
from bindery.nodecore.pods import Pod

FILES: Final = (cpu.FILE, memory.FILE)
"""The names of the files to read, in the kubelet's directory."""


class ObservedKubelet:
    """The kubelet of the node called `name` at one moment; implements `topologyreport.Reported`."""

    def __init__(
        self,
        name: str,
        machine: HollowMachine,
        files: Mapping[str, bytes],
        pods: Iterable[Pod],
    ) -> None:
        """Read the files; a file that is missing means that no pod holds resources of its kind.

        Args:
            name: the node's name.
            machine: hardware and settings.
            files: name of a checkpoint file -> content.
            pods: the pods that the kubelet has admitted and that have not ended.

        Raises:
            NodeCoreError: a file is corrupt, or contradicts the machine or its settings.
        """
        self.name, self.machine = name, machine
        self._pods = tuple(pods)
        store, devices = MemoryStore(), CheckpointManager(MemoryStore())
        store.blobs.update(files)
        manager = ContainerManager(
            machine.config, self, CheckpointManager(store), devices, lambda: 0.0
        )
        manager.cpu.start({})
        manager.memory.observe()
        manager.cpu.remove_stale_state()
        manager.memory.remove_stale_state()
        self.manager = manager

    @property
    def memory_groups(self) -> tuple[int, ...]:
        """For each zone, the mask of zones used together with it for memory, as in `NodeZones`.

        A NodeResourceTopology has no field for these masks. The scheduler knows them from its
        records on pods.
        """
        state = self.manager.memory.state.machine
        return tuple(
            mask_of(one.cells) if one.assignments else 0 for _, one in sorted(state.items())
        )

    def active_pods(self) -> Sequence[Pod]:
        """Return the pods that are admitted and not terminated."""
        return self._pods

    def sources_ready(self) -> bool:
        """Return True: no pods remain to be restored."""
        return True

    def admitted(self) -> Sequence[Pod]:
        """Return the pods that run."""
        return self._pods
