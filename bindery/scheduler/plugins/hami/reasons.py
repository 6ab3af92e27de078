"""The reasons against devices, in HAMi's words: `3/8 CardInsufficientMemory, 1/8 CardNotHealth`.

`fit` collects them for one node, the plugin sums them over nodes. A reason against single devices
has their number; a reason against the whole node has none.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

NODE_INSUFFICIENT_DEVICE: Final = "NodeInsufficientDevice"
"""The node has fewer devices than requested; there is no other reason then."""
CARD_PROMISED: Final = "CardPromised"
"""Bindery's own reason: the room is promised to other pods."""

CARD_USED_BY_JOB: Final = "CardUsedByJob"
"""Bindery's own reason: the device has another pod of a job that spreads over devices."""


@dataclass
class Reasons:
    """The reasons against devices, with counts."""

    total: int = 0
    """Number of checked devices."""
    _cards: Counter[str] = field(default_factory=Counter)
    """Reason -> number of devices."""
    _words: set[str] = field(default_factory=set)
    """Reasons against whole nodes."""

    @classmethod
    def of_node(cls, word: str) -> "Reasons":
        """Return the reason `word` against a whole node."""
        return cls(_words={word})

    def add(self, word: str, cards: int = 1) -> None:
        """Add the reason `word` for `cards` devices."""
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
