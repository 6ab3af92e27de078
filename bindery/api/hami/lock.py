"""The value of a node lock: `TIME[,NAMESPACE,NAME]`, TIME as RFC 3339.

The annotation contains the time of the lock and the pod that holds the node until its devices are
allocated. Before v2.4.0 (and in Cambricon's own lock) it contains only the time: then the holder is
unknown. Written by the binder, read by the binder and by device plugins.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from bindery.api.hami.errors import HamiFormatError, shown

_TIME: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:Z|([+-])(\d{2}):(\d{2}))",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class NodeLock:
    """The holder of a node's lock, and the time. An unknown holder has an empty name."""

    since_s: int
    """Whole seconds since the epoch."""
    namespace: str = ""
    name: str = ""

    @property
    def is_anonymous(self) -> bool:
        """Whether the holder is unknown."""
        return not self.name

    def is_of(self, namespace: str, name: str) -> bool:
        """Whether the pod, or an earlier pod of its name, holds the lock, which has no UID."""
        return (self.namespace, self.name) == (namespace, name)

    def encode(self) -> str:
        """Return the annotation's value, in UTC and without fractions, in Go's form."""
        at = (_EPOCH + timedelta(seconds=self.since_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        at = at.rjust(len("0000-00-00T00:00:00Z"), "0")
        return at if self.is_anonymous else f"{at},{self.namespace},{self.name}"


def decode(text: str) -> NodeLock:
    """Read the value of a lock.

    Raises:
        HamiFormatError: `text` has two or more than three parts, or no valid time.
    """
    parts = text.split(",")
    if len(parts) not in (1, _PARTS):
        raise HamiFormatError(f"lock {shown(text)} has {len(parts)} parts")
    namespace, name = parts[1:] if len(parts) == _PARTS else ("", "")
    if len(parts) == _PARTS and not (namespace and name):
        raise HamiFormatError(f"lock {shown(text)} names no pod")
    return NodeLock(_seconds(parts[0]), namespace, name)


def _seconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise HamiFormatError(f"lock time {shown(text)} is not an RFC 3339 time")
    *fields, sign, hours, minutes = match.groups()
    try:
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-offset if sign == "-" else offset)
        year, month, day, hour, minute, second = map(int, fields)
        at = datetime(year, month, day, hour, minute, second, tzinfo=zone)
        since = (at - _EPOCH) // timedelta(seconds=1)
        _EPOCH + timedelta(seconds=since)  # a time zone can move it out of the range of datetime
    except (ValueError, OverflowError) as error:
        raise HamiFormatError(f"lock time {shown(text)}: {error}") from error
    return since
