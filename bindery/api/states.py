"""Words and numbers in objects: phases, conditions, limits.

Separate from the models, so that commands that only show them do not import pydantic.
"""

from enum import StrEnum
from typing import Final

SCHEDULED: Final = "Scheduled"
"""The PodGroup condition of planning: True if the gang has been planned, else with a reason."""

INVALID: Final = "Invalid"
"""The reason of the condition `Scheduled` when the PodGroup itself is invalid."""

MALFORMED: Final = "Malformed"
"""The reason of a BindRequest, or of one of its Statements, that is malformed."""

PODS_NOT_RUNNING: Final = "PodsNotRunning"
"""The PodGroup condition that exists, with status True, while bound pods do not start."""

GPUS_IDLE: Final = "GpusIdle"
"""The PodGroup condition that exists, with status True, while no pod of the gang has used its GPUs
for longer than the queue allows."""

DEVICES_UNHEALTHY: Final = "DevicesUnhealthy"
"""The PodGroup condition that exists, with status True, while a node reports devices of the gang's
pods as unhealthy."""

EVICTED: Final = "Evicted"
"""The PodGroup condition with the record of its last eviction. True until the gang has its minimum
again."""

HARD: Final = "hard"
SOFT: Final = "soft"
"""The modes of a constraint by HyperNodes: with `soft`, nodes without a common one do too."""

UNLIMITED: Final = -1
"""A quota or limit without a bound."""

MOST_QUEUE_LEVELS: Final = 32
"""Maximum depth of the tree of queues. A schema cannot limit it, as each queue is an object by
itself. The scheduler does not serve a deeper queue, and sets its condition `Ready` to False."""

MOST_GANG_PODS: Final = 100_000
"""Maximum of each number of pods that a PodGroup can require."""

LONGEST_STAGE_TIMEOUT_S: Final = 86_400.0
"""Maximum time for which the room of later stages is kept."""

MOST_SUB_GROUPS: Final = 10_000
"""Maximum number of sub-groups of a PodGroup."""

MOST_SUB_GROUP_LEVELS: Final = 16
"""Maximum depth of the tree of sub-groups. The scheduler checks it: structural schemas have no rule
about references between items of a list, and CEL has no recursion."""


NON_PREEMPTIBLE_FROM: Final = 100
"""Gangs of this priority or higher are not evicted for others, unless they allow it."""


ENDED_POD_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""The phases of pods without running containers, now and later."""


class GangState(StrEnum):
    """The state of a gang."""

    WAITING = "Waiting"
    """The gang lacks its minimum, and no binding for it is in progress."""
    BINDING = "Binding"
    """The required pods have nodes; the binder is binding them."""
    RUNNING = "Running"
    """The required pods are bound."""
    FINISHED = "Finished"
    """All pods have ended."""
    EVICTED = "Evicted"
    """The pods were evicted, and no others have replaced them."""
    IDLE = "Idle"
    """The gang has no pods and needs none, such as a Deployment with 0 replicas."""
    INVALID = "Invalid"
    """The PodGroup is invalid."""


class Phase(StrEnum):
    """The binder's progress with a request."""

    PENDING = "Pending"
    BINDING = "Binding"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """Whether the binder has finished the request."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)
