"""Why devices do not fit, in HAMi's words: `3/8 CardInsufficientMemory, 1/8 CardNotHealth`.

Filled by `fit` for one node, added up by the plugin over several. A word of a single device comes
with how many of the node's devices it concerns; one of the whole node stands alone.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

NODE_INSUFFICIENT_DEVICE: Final = "NodeInsufficientDevice"
"""The node has fewer devices than are asked for; nothing else is said then."""
CARD_PROMISED: Final = "CardPromised"
"""Bindery's own: the room is promised to pods that wait for others to go."""

CARD_USED_BY_JOB: Final = "CardUsedByJob"
"""Bindery's own: another pod of the job is on the device, and the job wants them apart."""


@dataclass
class Reasons:
    """What is against some devices."""

    total: int = 0
    """How many devices were looked at."""
    _cards: Counter[str] = field(default_factory=Counter)
    """Word -> how many devices."""
    _words: set[str] = field(default_factory=set)
    """Words of whole nodes."""

    @classmethod
    def of_node(cls, word: str) -> "Reasons":
        """Return that `word` is against a whole node."""
        return cls(_words={word})

    def add(self, word: str, cards: int = 1) -> None:
        """Note that `word` is against so many more devices."""
        self._cards[word] += cards

    def __add__(self, other: "Reasons") -> "Reasons":
        return Reasons(
            self.total + other.total, self._cards + other._cards, self._words | other._words
        )

    def __bool__(self) -> bool:
        return bool(self._cards or self._words)

    def __str__(self) -> str:
        counted = (f"{count}/{self.total} {word}" for word, count in self._cards.items())
        return ", ".join(sorted((*counted, *self._words)))
