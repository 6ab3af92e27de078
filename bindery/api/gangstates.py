"""The states of a gang, and its condition beside `Scheduled`.

Without pydantic, so that commands import it quickly.
"""

from enum import StrEnum
from typing import Final

EVICTED: Final = "Evicted"
"""The PodGroup condition that keeps the trail of its last eviction. True while the gang has not
had its minimum again since."""


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
    INVALID = "Invalid"
    """Its PodGroup has to be mended."""
