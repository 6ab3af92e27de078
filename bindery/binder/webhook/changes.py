"""JSON patches (RFC 6902) between two states of an object. Pure."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch from `old` to `new`, as deep as both are objects."""
    return list(_changes(old, new, ""))


def patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a response that change `old` to `new`; empty if they are equal."""
    found = changes(old, new)
    if not found:
        return {}
    return {
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(found).encode()).decode(),
    }


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[dict[str, Any]]:
    for key in sorted({*old, *new}):
        here = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield {"op": "remove", "path": here}
        elif key not in old:
            yield {"op": "add", "path": here, "value": new[key]}
        elif isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
            yield from _changes(old[key], new[key], here)
        elif old[key] != new[key]:
            yield {"op": "replace", "path": here, "value": new[key]}
