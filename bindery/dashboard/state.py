"""The picture of now: planned in a thread, at most once in `PLAN_EVERY_S` and only while looked at.

A `ClusterReader` has the cluster; `live` watches one, and a file is one that never changes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

import structlog

from bindery.answers.errors import NoAnswerError
from bindery.answers.grouperrows import GrouperRows
from bindery.answers.source import Source
from bindery.dashboard.facts import Picture
from bindery.dashboard.kept import KeptEngine
from bindery.dashboard.metrics import LOOKERS, PICTURES, PLAN_SECONDS
from bindery.kube.errors import KubeError

PLAN_EVERY_S: Final = 10.0
"""Minimum seconds between the starts of two plans."""
REST: Final = 3.0
"""Minimum time between the starts of two plans, in multiples of the time that the last one took: so
planning takes at most a third of the time, however large the cluster is."""
AGED_S: Final = 60.0
"""Age after which a picture is made again although nothing has changed, because times go on."""
PATIENCE_S: Final = 0.2
"""Seconds that a request waits for a new picture if the newest one is old, and the last one took no
longer; after that it gets the old one, whose age is shown."""

_log = structlog.get_logger()


class ClusterReader(Protocol):
    """Has the cluster of now."""

    @property
    def changes(self) -> int:
        """Grows with each change of the cluster."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether the cluster is one moment, such as a file, at which no time goes by."""
        ...

    @property
    def kept(self) -> KeptEngine:
        """The engine that pictures are planned with. It gets every change of the cluster."""
        ...

    async def source(self) -> Source:
        """Return the cluster as it is at the moment of the return.

        Raises:
            KubeError: it cannot be read.
        """
        ...

    async def grouper_rows(self) -> GrouperRows:
        """Return the rows of the grouper, for `whatif`.

        Raises:
            KubeError: the cluster does not answer.
        """
        ...

    def namespaces(self) -> list[str]:
        """Return the namespaces with objects that a page could name."""
        ...


class StateKeeper:
    """Keeps the newest picture. `clock` returns seconds that never go back."""

    def __init__(
        self,
        reader: ClusterReader,
        clock: Callable[[], float],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._reader = reader
        self._patience_s = patience_s
        self.took_s = 0.0
        """How long the last plan took."""
        self._clock = clock
        self._picture: Picture | None = None
        self._changes = -1
        self._begun_s = float("-inf")
        self._tried_s = float("-inf")
        self._planning: asyncio.Task[None] | None = None
        self._news: asyncio.Condition = asyncio.Condition()
        self._lookers = 0

    @property
    def now_s(self) -> float:
        """The time, in seconds that never go back."""
        return self._clock()

    @property
    def age_s(self) -> float:
        """Seconds since the cluster of the newest picture was read."""
        return max(0.0, self._clock() - self._begun_s)

    @property
    def is_planning(self) -> bool:
        """Whether a picture is being made."""
        return self._planning is not None and not self._planning.done()

    async def picture(self) -> Picture:
        """Return the newest picture, and begin the next one if it is time for it.

        Raises:
            NoAnswerError: the cluster cannot be planned.
            KubeError: it cannot be read.
        """
        if self._is_due():
            self._begin()
        if self._planning is not None:
            await self._wait_for(self._planning)
        assert self._picture is not None, "the plan has raised if there is none"
        return self._picture

    async def _wait_for(self, planning: "asyncio.Task[None]") -> None:
        """Wait for the new picture where there is none; a moment where the newest one is old."""
        is_old = not self._reader.is_fixed and self.age_s > AGED_S + PLAN_EVERY_S
        is_quick = self.took_s <= self._patience_s  # in a large cluster, all would wait in vain
        if self._picture is None:
            await asyncio.shield(planning)
        elif is_old and is_quick:
            # An error is logged; the old picture is shown with its age.
            with suppress(TimeoutError, KubeError, NoAnswerError):
                async with asyncio.timeout(self._patience_s):
                    await asyncio.shield(planning)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Count a person who looks, within the block; while there is one, `run` plans."""
        self._lookers += 1
        LOOKERS.set(self._lookers)
        try:
            yield
        finally:
            self._lookers -= 1
            LOOKERS.set(self._lookers)

    async def after(self, version: int, wait_s: float) -> Picture | None:
        """Return the first picture with another version; None if none comes in `wait_s`."""
        async with self._news:
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait_for(
                        lambda: self._picture is not None and self._picture.version != version
                    )
            except TimeoutError:
                return None
        return self._picture

    async def run(self, look_every_s: float = 1.0) -> None:
        """Make the first picture, and further ones while pages are open, until cancelled."""
        while True:
            if (self._lookers or self._picture is None) and self._is_due():
                self._begin()
            await asyncio.sleep(look_every_s)

    def _is_due(self) -> bool:
        if self.is_planning:
            return False
        if self._picture is None:
            return True
        wait_s = max(PLAN_EVERY_S, REST * self.took_s)
        if self._reader.is_fixed or self._clock() - self._tried_s < wait_s:
            return False
        return self._changes != self._reader.changes or self.age_s > AGED_S

    def _begin(self) -> None:
        self._tried_s = self._clock()
        self._planning = asyncio.create_task(self._make())
        self._planning.add_done_callback(_note)

    async def _make(self) -> None:
        kept = self._reader.kept
        async with kept.turn:
            begun_s, changes = self._clock(), self._reader.changes
            source = await self._reader.source()
            version = 1 if self._picture is None else self._picture.version + 1
            with kept.lent(), PLAN_SECONDS.time():  # at once: the engine has what `source` has
                picture = await asyncio.to_thread(kept.picture, source, version)
        self._picture = picture
        self._begun_s, self._changes = begun_s, changes
        self.took_s = self._clock() - begun_s
        PICTURES.inc()
        async with self._news:
            self._news.notify_all()


def _note(task: "asyncio.Task[None]") -> None:
    """Log why a picture could not be made; a person who waits for it gets the error too."""
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, KubeError | NoAnswerError):
        _log.warning("no new picture of the cluster", error=str(error))
    elif error is not None:
        _log.error("no new picture of the cluster", exc_info=error)
