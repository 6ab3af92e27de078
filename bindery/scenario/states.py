"""The states of a pod, as scenarios and results name them.

Read by the models, the in-memory cluster and the comparison. Most of them are in the
pod object; Binding and Pipelined follow from a BindRequest and from the cycle's report.
"""

from enum import StrEnum


class PodState(StrEnum):
    """The state of a pod."""

    PENDING = "Pending"
    GATED = "Gated"
    PIPELINED = "Pipelined"
    """It waits for resources that are being released."""
    BINDING = "Binding"
    """It is in a BindRequest that has not ended."""
    BOUND = "Bound"
    """It has its node and has not started."""
    RUNNING = "Running"
    RELEASING = "Releasing"
    """It is being deleted."""
    STUCK_IN_RELEASING = "StuckInReleasing"
    """It is being deleted for so long that its resources are not expected to become free."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


INITIAL_STATES = frozenset(PodState) - {PodState.PIPELINED, PodState.BINDING}
"""The states of initial pods; the others follow from a cycle or a BindRequest."""
ON_NODE = frozenset(
    {PodState.BOUND, PodState.RUNNING, PodState.RELEASING, PodState.STUCK_IN_RELEASING}
)
"""States that need a node."""
FINISHED = frozenset({PodState.SUCCEEDED, PodState.FAILED})
STATE_NAMES = frozenset(state.value for state in PodState)
