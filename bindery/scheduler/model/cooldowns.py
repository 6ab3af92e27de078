"""How long a node is avoided after failures there: shorter at first, then doubled. Pure.

`cache/failures.py` keeps a cooldown for each job and node, the plugin cooldown for each shape of
pods and node. The result depends only on the times of the failures, not on the order in which they
become known.
"""

import math
from dataclasses import dataclass
from typing import Final

_FIRST_PART: Final = 4
"""After the first failure a node is avoided for this part of the configured time."""
_MOST_TIMES: Final = 16


@dataclass(frozen=True, slots=True)
class Cooldown:
    """The failures of one kind on one node. Times are seconds since the epoch."""

    times: tuple[float, ...] = ()
    """Of the last failures, sorted."""

    def failed(self, at: float) -> "Cooldown":
        """Return the cooldown with one more failure."""
        return Cooldown(tuple(sorted({*self.times, at}))[-_MOST_TIMES:])

    def until(self, longest_s: float) -> float:
        """Return until when the node is avoided, for at most `longest_s` after a failure.

        Failures during a cooldown do not prolong it: their pods were bound before it. If none
        follows for `longest_s` after it, the next one is a first one again.
        """
        first_s = longest_s / _FIRST_PART
        until, next_s = -math.inf, first_s
        for at in self.times:
            if at < until:
                continue
            next_s = first_s if at >= until + longest_s else next_s
            until, next_s = at + min(next_s, longest_s), next_s * 2
        return until

    def is_over(self, longest_s: float, now: float) -> bool:
        """Return whether the next failure would be a first one."""
        return now >= self.until(longest_s) + longest_s
