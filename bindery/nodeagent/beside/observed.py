"""A kubelet at one moment, read from its checkpoint files and its devices, for reports. Pure.

The files keep the resources of ended pods until the kubelet admits another pod. So resources of
pods that are not in the given list count as free.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bindery.nodeagent.beside.podresources import ContainerDevices
from bindery.nodeagent.hardware import MachineSettings
from bindery.nodecore.checkpoints import cpu, devices, memory
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.devices.state import DeviceState, Held, by_node, to_checkpoint
from bindery.nodecore.pods import Pod

FILES: Final = (cpu.FILE, memory.FILE)
"""The names of the files to read, in the kubelet's directory."""

HeldDevices = Mapping[str, ContainerDevices]
"""Pod UID -> the devices of its containers."""

_NO_DEVICES: Final[HeldDevices] = MappingProxyType({})


class ObservedKubelet:
    """The kubelet of the node called `name` at one moment; implements `topologyreport.Reported`."""

    def __init__(
        self,
        name: str,
        machine: MachineSettings,
        files: Mapping[str, bytes],
        pods: Iterable[Pod],
        held: HeldDevices = _NO_DEVICES,
    ) -> None:
        """Read the files; a file that is missing means that no pod holds resources of its kind.

        Args:
            name: the node's name.
            machine: hardware and settings.
            files: name of a checkpoint file -> content.
            pods: the pods that the kubelet has admitted and that have not ended.
            held: the devices of pods.

        Raises:
            NodeCoreError: a file is corrupt, or contradicts the machine or its settings.
        """
        self.name, self.machine = name, machine
        self._pods = tuple(pods)
        store = MemoryStore()
        store.blobs.update(files)
        manager = ContainerManager(
            machine.config,
            self,
            CheckpointManager(store),
            CheckpointManager(_device_store(machine, held)),
            lambda: 0.0,
        )
        manager.cpu.start({})
        manager.memory.observe()
        manager.devices.start()
        for resource, listed in machine.devices.items():
            manager.devices.update(resource, listed)
        for each in (manager.cpu, manager.memory, manager.devices):
            each.remove_stale_state()
        self.manager = manager

    def active_pods(self) -> Sequence[Pod]:
        """Return the pods that are admitted and not terminated."""
        return self._pods

    def sources_ready(self) -> bool:
        """Return True: no pods remain to be restored."""
        return True

    def admitted(self) -> Sequence[Pod]:
        """Return the pods that run."""
        return self._pods


def _device_store(machine: MachineSettings, held: HeldDevices) -> MemoryStore:
    """Return a store with the checkpoint that a kubelet would write of these devices."""
    state = DeviceState()
    for uid, containers in held.items():
        for container, resources in containers.items():
            for resource, ids in resources.items():
                known = {one.id: one for one in machine.devices.get(resource, ())}
                own = Held(by_node(known, ids), response=b"")
                state = state.with_held(uid, container, resource, own)
    store = MemoryStore()
    store.write(devices.FILE, to_checkpoint(state).encode())
    return store
