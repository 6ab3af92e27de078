"""Stores a record in a ConfigMap, over restarts and changes of the leader.

`usage/recordkeeper.py` and `history/keeping.py` create one each. Invariants: the record of an
earlier leader is read before it is overwritten, unless it is malformed; and a leader of an earlier
term never overwrites the record of a later one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from bindery.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from bindery.kube.lease import Leadership
from bindery.scheduler.records.errors import RecordError
from bindery.scheduler.records.store import RecordStore

LAST_SAVE_S = 5.0
"""Time limit for storing the record at the end of a term, in seconds."""


class KeptRecord(Protocol):
    """A record in memory, which can be written as text."""

    def begin(self) -> None:
        """Start empty, for a new term."""

    def restore(self, text: str) -> None:
        """Put the stored record before that of this term; raises RecordError."""

    def text(self, term: int) -> str:
        """Return the record as text. `term`: the fencing token of the writer."""

    def term_of(self, text: str) -> int:
        """Return the term of the writer of `text`; raises RecordError."""

    def end(self) -> None:
        """Stop until the next term, as the time until then is not observed."""


class RecordProblems(Protocol):
    """Reports what failed."""

    def error(self, operation: str, reason: str, problem: str, /) -> None:
        """Count and report a failed `operation`. `reason`: one CamelCase word."""


class RecordKeeper:
    """Loads `record` at the start of a term; stores it every `save_s` seconds and at the end.

    `subject`: begins the reasons of problems, such as `Usage` of `UsageNotStored`. `updated` is
    called after each load and each write.
    """

    def __init__(
        self,
        record: KeptRecord,
        store: RecordStore,
        problems: RecordProblems,
        subject: str,
        save_s: float,
        updated: Callable[[], None],
    ) -> None:
        self._record = record
        self._store = store
        self._problems = problems
        self._subject = subject
        self.save_s = save_s
        self._updated = updated
        self._is_loaded = False
        self._stored = ""
        """The text of the last write."""

    @asynccontextmanager
    async def kept(self, leadership: Leadership) -> AsyncIterator[None]:
        """Load the record, store it periodically, and once more at the end."""
        # The ConfigMap has the earlier terms, also those of other processes.
        self._record.begin()
        self._is_loaded, self._stored = False, ""
        await self._load()
        storing = asyncio.create_task(self._store_now_and_then(leadership))
        try:
            yield
        finally:
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
            self._record.end()
            try:
                async with asyncio.timeout(LAST_SAVE_S):
                    await self._save(leadership)
            except TimeoutError:
                self._error("save", "NotStored", "no answer before the term ended")

    async def _store_now_and_then(self, leadership: Leadership) -> None:
        while True:
            await asyncio.sleep(self.save_s)
            if not self._is_loaded:  # loading failed so far; writing now would lose the old record
                await self._load()
            await self._save(leadership)

    async def _load(self) -> None:
        """Put the stored record before that of this term; malformed text counts as none."""
        try:
            text = await self._store.load()
        except KubeError as error:
            self._error("load", "NotRead", f"the record is not known yet: {error}")
            return
        self._is_loaded = True
        if not text:
            return
        try:
            self._record.restore(text)
        except RecordError as error:
            problem = f"the record in {self._store.name} is malformed and starts again: {error}"
            self._error("decode", "Malformed", problem)
            return
        self._updated()

    async def _save(self, leadership: Leadership) -> None:
        """Store the record if it has changed, unless a leader of a later term has stored one."""
        if not self._is_loaded or not leadership.is_valid():
            return
        text = self._record.text(leadership.fencing_token)
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
            self._error("save", "NotStored", str(error))
            return
        self._stored = text
        self._updated()

    async def _is_deposed(self, term: int) -> bool:
        """Read the record again; return whether a leader of a later term has written it."""
        text = await self._store.load()
        try:
            return bool(text) and self._record.term_of(text) > term
        except RecordError:
            return False

    def _error(self, operation: str, reason: str, problem: str) -> None:
        self._problems.error(operation, f"{self._subject}{reason}", problem)
