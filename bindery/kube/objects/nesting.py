"""Cuts JSON that is nested too deeply for the decoder.

Used by `watches.decoding` for lists and watch events with too many levels for the decoder. The API
server accepts 10,000 levels where a schema allows any content, so one object could otherwise hide a
whole list. Works without recursion.
"""

import re
from typing import Final

MOST_LEVELS: Final = 500
"""Maximum depth of a value. Python's recursion limit is 1,000 calls."""

_MARK: Final = b'"\\u0000bindery: nested too deeply"'
"""Replaces a removed part. No object that the API server stores contains this text."""

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
    """Return whether `part`, a part of a result of `cut`, contains a mark."""
    return _MARK in part
