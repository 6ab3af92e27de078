"""Reading and writing the memory manager's state as a checkpoint."""

from contextlib import suppress

from bindery.nodecore.checkpoints import memory as files
from bindery.nodecore.checkpoints.store import CheckpointManager, restored
from bindery.nodecore.errors import CheckpointError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.memory.state import MemoryState


def load(
    checkpoints: CheckpointManager,
    policy: str,
    *,
    features: Features = DEFAULT,
) -> MemoryState:
    """Return the state in the checkpoint; without one, write and return the empty state.

    Raises:
        RestoreError: the file is corrupt or of another policy.
    """
    state = restored(
        checkpoints, files.FILE, lambda blob: _state(blob, policy, features), "memory manager"
    )
    if state is None:
        state = MemoryState()
        save(checkpoints, policy, state, features=features)
    return state


def save(
    checkpoints: CheckpointManager,
    policy: str,
    state: MemoryState,
    *,
    features: Features = DEFAULT,
) -> None:
    """Write `state` in the version that the features ask for."""
    checkpoints.create(files.FILE, encode(policy, state, features=features))


def encode(policy: str, state: MemoryState, *, features: Features = DEFAULT) -> bytes:
    """Return the file of `state`: version 2 with PodLevelResourceManagers, else version 1."""
    pods = state.pods if features.pod_level_resource_managers else None
    return files.MemoryCheckpoint(policy, state.machine, state.containers, pods).encode()


def decode(blob: bytes, *, features: Features = DEFAULT) -> files.MemoryCheckpoint:
    """Return a file of either version; raises the CheckpointError of version 1 for neither."""
    if features.pod_level_resource_managers:
        with suppress(CheckpointError):  # an older version
            return files.decode_v2(blob)
    return files.decode_v1(blob, pod_level_managers=features.pod_level_resource_managers)


def _state(blob: bytes, policy: str, features: Features) -> MemoryState:
    checkpoint = decode(blob, features=features)
    if checkpoint.policy != policy:
        raise CheckpointError(
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint '
            f'policy "{checkpoint.policy}"'
        )
    return MemoryState(
        dict(checkpoint.machine or {}),
        dict(checkpoint.entries or {}),
        dict(checkpoint.pod_entries or {}),
    )
