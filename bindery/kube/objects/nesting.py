"""Cuts JSON that is nested too deeply for the decoder.

Used by `watches.decoding` for lists and watch events that the decoder gives up on. The API
server takes 10,000 levels where a schema allows any content, so one object could otherwise hide a
whole list. Works without recursion.
"""

import re
from typing import Final

MOST_LEVELS: Final = 500
"""How deep a value may be nested. Python's recursion limit is 1,000 calls."""

_MARK: Final = b'"\\u0000bindery: nested too deeply"'
"""Stands where something was cut out. No object that the API server stores has such a text."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def cut(text: bytes) -> bytes:
    """Return `text` with a mark in place of everything nested more than `MOST_LEVELS` deep."""
    kept: list[bytes] = []
    level, begin = 0, 0
    for token in _TOKEN.finditer(text):
        character = token.group()[:1]
        if character in b"[{":
            level += 1
            if level == MOST_LEVELS + 1:
                kept += (text[begin : token.start()], _MARK)
        elif character in b"]}":
            level -= 1
            if level == MOST_LEVELS:
                begin = token.end()
    if level <= MOST_LEVELS:
        kept.append(text[begin:])
    return b"".join(kept)


def is_cut(part: bytes) -> bool:
    """Return whether something was cut out of `part`, a part of what `cut` has returned."""
    return _MARK in part
