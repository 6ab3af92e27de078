"""Stores the record of past usage in a ConfigMap, over restarts and changes of the leader.

Created by `keeping.py`; `codec.py` has the format. Invariants: the record of an earlier leader is
read before it is overwritten, unless it is malformed; and a leader of an earlier term never
overwrites the record of a later one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from bindery.api.usage import UsageConfiguration
from bindery.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from bindery.kube.lease import Leadership
from bindery.scheduler.usage.codec import RecordError, decode, encode
from bindery.scheduler.usage.keeper import UsageProblems
from bindery.scheduler.usage.metrics import USAGE_UPDATED
from bindery.scheduler.usage.record import UsageRecord
from bindery.scheduler.usage.store import RecordStore

LAST_SAVE_S = 5.0
"""Time limit for storing the record at the end of a term, in seconds."""


class RecordKeeper:
    """Loads `record` at the start of a term; stores it every `save_s` seconds and at the end."""

    def __init__(
        self,
        record: UsageRecord,
        store: RecordStore,
        problems: UsageProblems,
        clock: Callable[[], float],
        save_s: float,
    ) -> None:
        self._record = record
        self._store = store
        self._problems = problems
        self._clock = clock
        self._save_s = save_s
        self._is_loaded = False
        self._stored = ""
        """The text of the last write."""

    def configure(self, configuration: UsageConfiguration) -> None:
        """Use the interval of `configuration` from the next write on."""
        self._save_s = configuration.save_seconds

    @asynccontextmanager
    async def kept(self, leadership: Leadership) -> AsyncIterator[None]:
        """Load the record, store it periodically, and once more at the end."""
        # The ConfigMap has the earlier terms, also those of other processes.
        self._record.forget()
        self._is_loaded, self._stored = False, ""
        await self._load()
        storing = asyncio.create_task(self._store_now_and_then(leadership))
        try:
            yield
        finally:
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
            self._record.interrupt()
            try:
                async with asyncio.timeout(LAST_SAVE_S):
                    await self._save(leadership)
            except TimeoutError:
                self._problems.error("save", "UsageNotStored", "no answer before the term ended")

    async def _store_now_and_then(self, leadership: Leadership) -> None:
        while True:
            await asyncio.sleep(self._save_s)
            if not self._is_loaded:  # loading failed so far; writing now would lose the old record
                await self._load()
            await self._save(leadership)

    async def _load(self) -> None:
        """Put the stored history before that of this term; malformed text counts as none."""
        try:
            text = await self._store.load()
        except KubeError as error:
            self._problems.error("load", "UsageNotRead", f"past usage is not known yet: {error}")
            return
        self._is_loaded = True
        if not text:
            return
        try:
            history, _ = decode(text)
        except RecordError as error:
            problem = f"the record in {self._store.name} is malformed and starts again: {error}"
            self._problems.error("decode", "UsageMalformed", problem)
            return
        self._record.precede(history)
        USAGE_UPDATED.set(self._clock())

    async def _save(self, leadership: Leadership) -> None:
        """Store the record if it has changed, unless a leader of a later term has stored one."""
        if not self._is_loaded or not leadership.is_valid():
            return
        text = self._record.encoded(partial(encode, term=leadership.fencing_token))
        if text == self._stored:
            return
        try:
            try:
                await self._store.save(text)
            except (AlreadyExistsError, ConflictError, NotFoundError):
                # This reads the ConfigMap, so the second write is based on its newest version.
                if await self._is_deposed(leadership.fencing_token):
                    return
                await self._store.save(text)
        except KubeError as error:
            self._problems.error("save", "UsageNotStored", str(error))
            return
        self._stored = text
        USAGE_UPDATED.set(self._clock())

    async def _is_deposed(self, term: int) -> bool:
        """Read the record again; return whether a leader of a later term has written it."""
        text = await self._store.load()
        try:
            return bool(text) and decode(text)[1] > term
        except RecordError:
            return False
