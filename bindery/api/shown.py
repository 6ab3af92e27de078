"""Makes text of unknown origin safe for conditions, events, logs and terminals.

Names, annotations and errors contain text of users: possibly escape sequences for terminals, marks
that reverse the direction of text, or a hundred thousand characters.
"""

import re
import unicodedata
from typing import Final

MOST_SHOWN: Final = 1024
"""Maximum length of a message in a condition or an event."""
MOST_QUOTED: Final = 200
"""Maximum length of one name or value of a user in a message, because the reason follows it."""
_LONG_WORD: Final = re.compile(rf"(\S{{{MOST_QUOTED}}})\S+")
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories: controls, format characters (including bidirectional marks), surrogates,
unassigned and private characters, line separators."""
_ELLIPSIS: Final = "…"


def shown(text: str, most: int = MOST_SHOWN, *, keep: str = "") -> str:
    """Return `text` with unsafe characters escaped, in at most `most` characters.

    `keep`: unsafe characters that are kept, such as a line break.
    """
    cut = text if len(text) <= most else text[:most]
    if not cut.isascii() or not cut.isprintable():
        cut = "".join(c if c in keep else _escaped(c) for c in cut)
    if len(cut) > most or len(text) > most:
        cut = cut[: most - len(_ELLIPSIS)] + _ELLIPSIS
    return cut


def shown_message(text: str) -> str:
    """Return `text` for a condition or an event; longer words than `MOST_QUOTED` are cut.

    Names are words: even the longest name that the API server accepts must not displace the text
    after it.
    """
    return shown(_LONG_WORD.sub(rf"\1{_ELLIPSIS}", text) if len(text) > MOST_QUOTED else text)


def quoted(value: object) -> str:
    """Return `value`, text of a user, in quotes, with about `MOST_QUOTED` characters at most."""
    text = str(value)
    return repr(text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}{_ELLIPSIS}")


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
