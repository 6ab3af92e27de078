"""Keeps the scheduler's own record of past usage in a ConfigMap. Created by `keeping.py`.

`codec.py` has the format of the record, and `records/keeper.py` writes it.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from bindery.api.usage import UsageConfiguration
from bindery.kube.lease import Leadership
from bindery.scheduler.records.keeper import RecordKeeper
from bindery.scheduler.records.store import RecordStore
from bindery.scheduler.usage.codec import decode, encode
from bindery.scheduler.usage.keeper import UsageProblems
from bindery.scheduler.usage.metrics import USAGE_UPDATED
from bindery.scheduler.usage.record import UsageRecord


class _KeptUsage:
    """A `KeptRecord` of past usage."""

    def __init__(self, record: UsageRecord) -> None:
        self._record = record

    def begin(self) -> None:
        self._record.forget()

    def restore(self, text: str) -> None:
        self._record.precede(decode(text)[0])

    def text(self, term: int) -> str:
        return self._record.encoded(partial(encode, term=term))

    def term_of(self, text: str) -> int:
        return decode(text)[1]

    def end(self) -> None:
        self._record.interrupt()


class UsageRecordKeeper:
    """Loads `record` at the start of a term; stores it every `save_s` seconds and at the end."""

    def __init__(
        self,
        record: UsageRecord,
        store: RecordStore,
        problems: UsageProblems,
        clock: Callable[[], float],
        save_s: float,
    ) -> None:
        self._keeper = RecordKeeper(
            _KeptUsage(record),
            store,
            problems,
            "Usage",
            save_s,
            lambda: USAGE_UPDATED.set(clock()),
        )

    def configure(self, configuration: UsageConfiguration) -> None:
        """Use the interval of `configuration` from the next write on."""
        self._keeper.save_s = configuration.save_seconds

    def kept(self, leadership: Leadership) -> AbstractAsyncContextManager[None]:
        """Load the record, store it periodically, and once more at the end."""
        return self._keeper.kept(leadership)
