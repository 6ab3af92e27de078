"""Reading and writing the CPU manager's state as a checkpoint.

An older version is migrated. What cannot be read stops the start: the kubelet asks the
administrator to drain the node and to delete the file.
"""

from contextlib import suppress

from bindery.nodecore.checkpoints import cpu as files
from bindery.nodecore.checkpoints.store import CheckpointManager, restored
from bindery.nodecore.containers import ContainerIds
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpusets import CpuSet, CpuSetError, format_cpus, parse_cpus
from bindery.nodecore.errors import CheckpointError
from bindery.nodecore.features import DEFAULT, Features


def load(
    checkpoints: CheckpointManager,
    policy: str,
    containers: ContainerIds,
    *,
    features: Features = DEFAULT,
) -> CpuState:
    """Return the state in the checkpoint; without one, write and return the empty state.

    `containers`: the running containers, to migrate a file of version 1.

    Raises:
        RestoreError: the file is corrupt, of another policy, or has CPUs that are no list.
    """

    def decode(blob: bytes) -> CpuState:
        return _state(migrated(blob, containers, features=features), policy)

    state = restored(checkpoints, files.FILE, decode, "CPU manager")
    if state is None:
        state = CpuState()
        save(checkpoints, policy, state, features=features)
    return state


def save(
    checkpoints: CheckpointManager,
    policy: str,
    state: CpuState,
    *,
    features: Features = DEFAULT,
) -> None:
    """Write `state` in the version that the features ask for."""
    checkpoints.create(files.FILE, encode(policy, state, features=features))


def encode(policy: str, state: CpuState, *, features: Features = DEFAULT) -> bytes:
    """Return the file of `state`: version 3 with PodLevelResourceManagers, else version 2."""
    entries = {
        uid: {name: format_cpus(cpus) for name, cpus in inner.items()}
        for uid, inner in state.containers.items()
    }
    default = format_cpus(state.default)
    if features.pod_level_resource_managers:
        return files.CpuCheckpointV3(policy, default, entries, state.pods).encode()
    return files.CpuCheckpointV2(policy, default, entries).encode()


def migrated(
    blob: bytes, containers: ContainerIds, *, features: Features = DEFAULT
) -> files.CpuCheckpointV3:
    """Return the content of a file of any version, as version 3.

    The versions are tried from the newest to the oldest. As in the kubelet, the error is that of
    the oldest.

    Raises:
        CheckpointError: no version fits, or a container of version 1 is unknown.
    """
    if features.pod_level_resource_managers:
        with suppress(CheckpointError):  # an older version
            return files.decode_v3(blob)
    try:
        second = files.decode_v2(blob, pod_level_managers=features.pod_level_resource_managers)
    except CheckpointError:
        second = _second(files.decode_v1(blob), containers)
    return files.CpuCheckpointV3(second.policy, second.default, second.entries, {})


def _second(first: files.CpuCheckpointV1, containers: ContainerIds) -> files.CpuCheckpointV2:
    entries: dict[str, dict[str, str]] = {}
    for container_id, cpus in (first.entries or {}).items():
        if container_id not in containers:
            raise CheckpointError(
                "failed to migrate checkpoint from v1 to v2: "
                f"containerID '{container_id}' not found in initial containers list"
            )
        pod_uid, name = containers[container_id]
        entries.setdefault(pod_uid, {})[name] = cpus
    return files.CpuCheckpointV2(first.policy, first.default, entries)


def _state(checkpoint: files.CpuCheckpointV3, policy: str) -> CpuState:
    if checkpoint.policy != policy:
        raise CheckpointError(
            f'configured policy "{policy}" differs from state checkpoint policy '
            f'"{checkpoint.policy}"'
        )
    default = _parsed(checkpoint.default, f'could not parse default cpu set "{checkpoint.default}"')
    containers = {
        uid: {
            name: _parsed(
                cpus,
                f'could not parse cpuset "{cpus}" for container "{name}" in pod "{uid}"',
            )
            for name, cpus in inner.items()
        }
        for uid, inner in (checkpoint.entries or {}).items()
    }
    return CpuState(default, containers, dict(checkpoint.pod_entries or {}))


def _parsed(text: str, failure: str) -> CpuSet:
    try:
        return parse_cpus(text)
    except CpuSetError as error:
        raise CheckpointError(f"{failure}: {error}") from error
