"""The errors of nodecore, by what a caller can do about them."""


class NodeCoreError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(NodeCoreError):
    """The settings contradict themselves or the machine; the node agent must not start."""


class CheckpointError(NodeCoreError):
    """A checkpoint cannot be used."""


class CheckpointNotFoundError(CheckpointError):
    """There is no checkpoint of this name."""

    def __init__(self) -> None:
        super().__init__("checkpoint is not found")


class CorruptCheckpointError(CheckpointError):
    """The checksum in the file differs from the checksum of its content."""

    def __init__(self, stored: int, actual: int) -> None:
        super().__init__("checkpoint is corrupted")
        self.stored = stored
        self.actual = actual


class RestoreError(CheckpointError):
    """The state in a checkpoint cannot be restored; the node agent must not start."""


class StateError(NodeCoreError):
    """The recorded state contradicts the machine or itself; the node agent must not start."""


class AllocationError(NodeCoreError):
    """A container cannot have what it asks for. The pod is refused with `reason`."""

    reason: str = "UnexpectedAdmissionError"


class EmptyPodSharedPoolError(AllocationError):
    """Containers that share the pod's CPUs or memory would have none."""

    reason = "EmptyPodSharedPoolError"
