"""The interface of a world of the kill matrix, shared by `killmatrix` and the worlds.

A world is the work of one plugin, in a corner of the cluster. Each run of its gang, or of its
gangs, has three phases. In each phase the world can return the objects that should not exist.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum, StrEnum

from bindery.api.configuration import PluginConfiguration
from tests.e2e.support import WAIT_S, Corner, Gang

REFUSED, OTHER = "first", "second"
"""The nodes of a corner."""


class Blow(StrEnum):
    """What befalls a write."""

    KILLED_BEFORE = "killed before it"
    KILLED_AFTER = "killed after it"
    ERROR = "answered 500"
    LOST = "done, answer lost"
    CONFLICT = "answered 409"

    @property
    def kills(self) -> bool:
        return self in (Blow.KILLED_BEFORE, Blow.KILLED_AFTER)


class Phase(StrEnum):
    """How far a gang is."""

    REFUSED = "refused"
    """It is planned onto the first node, prepared there, refused, and all is taken back."""
    BOUND = "bound"
    """The other node is opened, and it is bound there."""
    GONE = "gone"
    """It is deleted."""


class Refuse(Enum):
    """When the first node refuses the gang."""

    PREPARED = "refuse_node"
    """After the plugin's `pre_bind`."""
    IN_TURN = "refuse_turn_on"
    """After the plugin's `before_bind`."""


@dataclass(frozen=True)
class Step:
    """One write: its phase, its method, its path without drawn names, and which of its kind."""

    phase: Phase
    method: str
    path: str
    at: int = 1

    def __str__(self) -> str:
        return f"{self.phase}: {self.method} {self.path} #{self.at}"


class World(ABC):
    """What a plugin works on. One for all corners."""

    plugin: PluginConfiguration
    """The plugin that is looked at."""
    refuse: Refuse = Refuse.PREPARED
    name: str = "gang"
    """That of the gang."""
    cpu: str = "2"
    """Of each node."""
    at_once: int = 8
    """In how many corners gangs are under way together."""

    @property
    def plugins(self) -> Sequence[PluginConfiguration]:
        """All plugins that are looked at."""
        return (self.plugin,)

    def gangs(self, corner: Corner) -> Sequence[Gang]:
        """Return all gangs of a run."""
        return (self.gang(corner),)

    @abstractmethod
    def gang(self, corner: Corner) -> Gang:
        """Return the gang, of two pods or more."""

    @abstractmethod
    def prepared(self, corner: Corner) -> AbstractAsyncContextManager[None]:
        """Make the nodes `REFUSED` and `OTHER` and what else gangs need; be the world's other
        side, such as a device plugin, while the body runs."""

    async def renew(self, corner: Corner) -> None:  # noqa: B027  # most worlds need nothing
        """Make what one gang uses up; called before each."""

    @abstractmethod
    async def held(self, corner: Corner) -> list[str]:
        """Return what the plugin holds for a gang that was refused and is not bound."""

    @abstractmethod
    async def amiss(self, corner: Corner) -> list[str]:
        """Return what is not as it must be while the gang is bound."""

    @abstractmethod
    async def left_over(self, corner: Corner) -> list[str]:
        """Return the remaining writes of the plugin after the gang is gone."""


async def wait_until_none(find: Callable[[], Awaitable[list[str]]], what: str) -> None:
    """Wait until `find` finds nothing; fails with its last findings."""
    deadline_s, pause_s = time.monotonic() + WAIT_S, 0.05
    while found := await find():
        assert time.monotonic() < deadline_s, f"{what}: {', '.join(found)}"
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.4)
