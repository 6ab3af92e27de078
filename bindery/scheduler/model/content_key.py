"""Keys for caches of results about API objects: equal content has the same key.

Used by `shapes` and by the volumes and DRA plugins.
"""

from typing import Any

import msgspec


def content_key(content: Any) -> bytes:
    """Return bytes that are equal if, and only if, the content is equal."""
    try:
        return msgspec.msgpack.encode(content)
    except OverflowError:  # msgpack has no numbers beyond 64 bits; JSON has
        return msgspec.json.encode(content)
