"""The order between the users of one queue: the user that holds the least goes first.

Items are jobs, or whatever waits. An item has a rank, which comes before the users, and an age,
which decides between items of equal rank whose users hold the same.
"""

import heapq
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")
Key = tuple[Any, ...]
"""Compared with keys of the same kind only."""


class Standings(Protocol):
    """What the users of a queue hold at any moment."""

    def part(self, user: str) -> float:
        """Return what `user` holds now, as a part of the queue's share."""

    def changes(self) -> Sequence[str]:
        """Return the users whose part has changed, in order; the sequence only grows."""


class _Entry(NamedTuple):
    rank: Key
    part: float
    age: Key
    user: str


class UserTurns(Generic[Item]):
    """The waiting items of one queue. The first has the best rank, then the user with the least.

    Parts may change at any time, in both directions. Each change costs one operation on a heap of
    users, when the next item is asked for.
    """

    def __init__(self, standings: Standings) -> None:
        self._standings = standings
        self._seen = len(standings.changes())
        """How many of the changes are in the order."""
        self._parts: dict[str, float] = {}
        """User -> its part, as of the changes that are in the order."""
        self._items: dict[str, list[tuple[Key, Key, Item]]] = {}
        """User -> heap of items by rank and age, without users that have none."""
        self._best: list[_Entry] = []
        """Heap of users by their first items, with outdated entries."""
        self._valid: dict[str, _Entry] = {}
        """User -> the entry that counts."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, user: str, rank: Key, age: Key, item: Item) -> None:
        """Add `item` of `user`. `age`: different for each item."""
        items = self._items.setdefault(user, [])
        heapq.heappush(items, (rank, age, item))
        if items[0][2] is item:
            self._place(user)

    def first(self) -> Item:
        """Return the first item, which must exist."""
        return self._items[self._first_user()][0][2]

    def pop(self) -> Item:
        """Remove the first item, which must exist, and return it."""
        user = self._first_user()
        item = heapq.heappop(self._items[user])[2]
        if not self._items[user]:
            del self._items[user]
        self._place(user)
        return item

    def _first_user(self) -> str:
        changes = self._standings.changes()
        for user in set(changes[self._seen :]):
            self._parts.pop(user, None)
            self._place(user)
        self._seen = len(changes)
        while self._best[0] is not self._valid.get(self._best[0].user):
            heapq.heappop(self._best)
        return self._best[0].user

    def _place(self, user: str) -> None:
        """Give `user` its position by its first item and what it holds now."""
        items = self._items.get(user)
        if items is None:
            self._valid.pop(user, None)
            return
        rank, age, _ = items[0]
        part = self._parts.get(user)
        if part is None:
            part = self._parts[user] = self._standings.part(user)
        entry = _Entry(rank, part, age, user)
        if entry != self._valid.get(user):
            self._valid[user] = entry
            heapq.heappush(self._best, entry)
