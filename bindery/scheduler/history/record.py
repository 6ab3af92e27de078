"""The history in memory, within its bounds.

`notes.py` adds to it, and `records/keeper.py` stores it. Invariant: only observed time is in the
trends: between two terms, and after the clock was set, there is none.
"""

from bindery.scheduler.history.codec import Past, decode, encode
from bindery.scheduler.history.entries import MOST_ENTRIES, HistoryBook, HistoryEntry
from bindery.scheduler.history.trends import SLICE_S, Figures, fitting, observed
from bindery.scheduler.usage.formula import History

LONGEST_SAMPLE_S = 60.0
"""Time after which figures no longer stand for the time since they were taken."""


class HistoryRecord:
    """Entries and trends of the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._book = HistoryBook()
        self._trends = History.empty()
        self._seen: tuple[float, Figures] | None = None
        """The last figures, and their time."""
        self._now = 0.0
        self._written = ""
        """The last text."""
        self._write_at = 0.0
        """Time from which trends alone are worth a write."""
        self._is_changed = False

    def add(self, entry: HistoryEntry) -> None:
        """Add an entry."""
        self._book.add(entry)
        self._is_changed = True
        if len(self._book) > 2 * MOST_ENTRIES:
            self._book.bound(entry.until - self.window_s)

    def sample(self, figures: Figures, now: float) -> None:
        """Add the last figures for the time until `now`, and remember `figures`."""
        self._now = now
        if self._seen is not None:
            since, before = self._seen
            if 0 < now - since <= LONGEST_SAMPLE_S:
                self._trends = observed(self._trends, before, since, now)
        self._trends = fitting(self._trends.within(now - self.window_s, now), now)
        self._seen = now, figures

    def past(self, term: int = 0) -> Past:
        """Return its content, within all bounds."""
        entries = tuple(self._book.bound(self._now - self.window_s))
        return Past(entries, self._trends, term)

    # ---- as a `KeptRecord` ------------------------------------------------------------------

    def begin(self) -> None:
        """Start empty, for a new term."""
        self._book, self._trends = HistoryBook(), History.empty()
        self._written, self._is_changed = "", False
        self.end()

    def restore(self, text: str) -> None:
        """Put the stored record before that of this term; raises RecordError."""
        earlier, own = decode(text), self.past()
        self._book = HistoryBook((*earlier.entries, *own.entries))
        self._trends = earlier.trends.followed_by(self._trends)

    def text(self, term: int) -> str:
        """Return the record as text; the same as before while there is little news."""
        if self._written and not self._is_changed and self._now < self._write_at:
            return self._written
        self._written = encode(self.past(term), self._now)
        self._is_changed, self._write_at = False, self._now + SLICE_S
        return self._written

    def term_of(self, text: str) -> int:
        """Return the term of the writer of `text`; raises RecordError."""
        return decode(text).term

    def end(self) -> None:
        """Stop until the next term, as the time until then is not observed."""
        self._seen = None
