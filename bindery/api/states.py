"""The words and numbers that objects use: phases, conditions, what is unlimited.

They stand apart from the models, so that a command which only shows them does not import pydantic.
"""

from enum import StrEnum
from typing import Final

SCHEDULED: Final = "Scheduled"
"""The PodGroup condition of planning: True if the gang has been planned, else with a reason."""

INVALID: Final = "Invalid"
"""The reason of that condition when the PodGroup itself has to be mended."""

MALFORMED: Final = "Malformed"
"""The reason of a BindRequest, or one of its Statements, that cannot be understood."""

PODS_NOT_RUNNING: Final = "PodsNotRunning"
"""The PodGroup condition that exists, with status True, while bound pods do not start."""

EVICTED: Final = "Evicted"
"""The PodGroup condition with the record of its last eviction. True while the gang has not
had its minimum again since."""

UNLIMITED: Final = -1
"""A quota or limit that does not bound anything."""

MOST_QUEUE_LEVELS: Final = 32
"""Maximum depth of the tree of queues. A schema cannot limit it, as each queue is an object by
itself. The scheduler does not serve a deeper queue, and sets its condition `Ready` to False."""

MOST_GANG_PODS: Final = 100_000
"""Maximum of each number of pods that a PodGroup can demand."""

LONGEST_STAGE_TIMEOUT_S: Final = 86_400.0
"""Maximum time for which the room of later stages is kept."""

MOST_SUB_GROUPS: Final = 10_000
"""Maximum number of sub-groups of a PodGroup."""

MOST_SUB_GROUP_LEVELS: Final = 16
"""Maximum depth of their tree. The scheduler checks it: structural schemas have no rule about how
items of a list refer to each other, and CEL has no recursion."""


NON_PREEMPTIBLE_FROM: Final = 100
"""Gangs of this priority or higher are not evicted for others, unless they allow it."""


ENDED_POD_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""The phases of pods of which no container runs any more or will run again."""


class GangState(StrEnum):
    """Where a gang stands now."""

    WAITING = "Waiting"
    """It has not what it needs, and nothing of it is on the way."""
    BINDING = "Binding"
    """All that it needs has a node; the binder is at work."""
    RUNNING = "Running"
    """All that it needs is bound."""
    FINISHED = "Finished"
    """All of its pods have ended."""
    EVICTED = "Evicted"
    """Its pods were evicted, and no others have come in their place."""
    IDLE = "Idle"
    """It has no pods and needs none, such as a Deployment with 0 replicas."""
    INVALID = "Invalid"
    """Its PodGroup has to be mended."""


class Phase(StrEnum):
    """How far the binder has come with a request."""

    PENDING = "Pending"
    BINDING = "Binding"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for the request."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)
