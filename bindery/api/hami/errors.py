"""The error of the codecs, and readers of numbers.

Called by every codec of the package. Invariant: a text that Go's strconv refuses is refused here
too, so that it has the same meaning for HAMi's components.
"""

import re
from typing import Final

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
INT32_MAX: Final = 2**31 - 1
"""The largest number of the protocol: HAMi keeps memory, cores and counts in 32 bits."""
_SHOWN: Final = 60


class HamiFormatError(ValueError):
    """A text does not follow the protocol; the message names the field and the text."""


def shown(text: str) -> str:
    """Return `text` for a message, shortened if long."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def integer(text: str, field: str, *, least: int = 0) -> int:
    """Read a 32-bit integer of at least `least`, as strconv.ParseInt(text, 10, 32) does.

    Raises:
        HamiFormatError: `text` is not such an integer. The message contains `field`, its name.
    """
    if _INTEGER.fullmatch(text) is None:
        raise HamiFormatError(f"{field} {shown(text)} is not a whole number")
    number = int(text)
    if not least <= number <= INT32_MAX:
        raise HamiFormatError(f"{field} {shown(text)} is out of range")
    return number


def boolean(text: str, field: str) -> bool:
    """Read a boolean as strconv.ParseBool does.

    Raises:
        HamiFormatError: `text` is not a boolean. The message contains `field`, its name.
    """
    value = _BOOLEANS.get(text)
    if value is None:
        raise HamiFormatError(f"{field} {shown(text)} is neither true nor false")
    return value
