"""Keys by which equal content of API objects is found again.

Used by `shapes` and by the plugins of volumes and DRA, which work out once what equal content
means.
"""

from typing import Any

import msgspec


def content_key(content: Any) -> bytes:
    """Return bytes that are equal for equal content, and for no other."""
    try:
        return msgspec.msgpack.encode(content)
    except OverflowError:  # msgpack has no numbers beyond 64 bits; JSON has
        return msgspec.json.encode(content)
