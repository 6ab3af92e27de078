"""The clock and the chance of a process, given to it as an argument with its client.

Every component reads both through `Client.environment`. The real one is `realenvironment.REAL`; a
test that plays a history gives its own. Durations need no argument: they are measured by
`asyncio.get_running_loop().time()`, which belongs to the event loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Environment:
    """The clock and the chance of a process."""

    now_s: Callable[[], float]
    """Returns seconds since the epoch."""
    random: Random
    """Spreads what would happen at the same moment, and draws names."""

    def token(self, length: int) -> str:
        """Draw `length` hexadecimal digits."""
        return f"{self.random.getrandbits(4 * length):0{length}x}"
