"""Plans HyperNodes: a domain for each value of a label, in the order of the levels. Pure.

Two nodes are in one domain of a level if they have the same value there and at each level above, so
the domains are a tree whatever the labels are. Members are selected by labels, so a node that comes
or goes changes nothing here unless it is the first or the last of its domain.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

Levels = Sequence[Sequence[str]]
"""The labels of each level, the closest level first; of a level the first label that a node has."""
Path = tuple[tuple[int, str, str], ...]
"""The domains of a node, the widest first: level, label, value."""

_MOST_SLUG: Final = 40
_DIGEST: Final = 10


def planned(nodes: Iterable[Mapping[str, str]], levels: Levels) -> dict[str, dict[str, Any]]:
    """Return the specs of the HyperNodes by name; `nodes`: the labels of each node."""
    ends: set[Path] = {path for labels in nodes if (path := path_of(labels, levels))}
    children: defaultdict[Path, set[Path]] = defaultdict(set)
    for end in ends:
        for length in range(1, len(end)):
            children[end[:length]].add(end[: length + 1])
    return {
        name_of(path): {
            "tier": path[-1][0] + 1,
            "members": _members(path, sorted(children[path]), path in ends, levels),
        }
        for path in sorted({*ends, *children})
    }


def path_of(labels: Mapping[str, str], levels: Levels) -> Path:
    """Return the domains of a node. A level without a label of the node is left out."""
    found: list[tuple[int, str, str]] = []
    for level in reversed(range(len(levels))):
        key = next((key for key in levels[level] if key in labels), None)
        if key is not None:
            found.append((level, key, labels[key]))
    return tuple(found)


def name_of(path: Path) -> str:
    """Return the name of a HyperNode: readable, and unique by a digest of its whole path."""
    _, key, value = path[-1]
    text = f"{key.rpartition('/')[2]}-{value}".lower()
    slug = re.sub(r"[^a-z0-9]+", "-", text)[:_MOST_SLUG].strip("-")
    digest = sha256(repr(path).encode()).hexdigest()[:_DIGEST]
    return f"{slug}-{digest}"


def _members(
    path: Path, children: Sequence[Path], has_nodes: bool, levels: Levels
) -> list[dict[str, Any]]:
    """Return the HyperNodes in a domain, and the nodes that are in none of these."""
    members: list[dict[str, Any]] = [
        {"type": "HyperNode", "name": name_of(child)} for child in children
    ]
    if has_nodes:
        selector: dict[str, Any] = {"matchLabels": {key: value for _, key, value in path}}
        absent = sorted(_absent(path, levels, is_parent=bool(children)))
        if absent:
            selector["matchExpressions"] = [
                {"key": key, "operator": "DoesNotExist"} for key in absent
            ]
        members.append({"type": "Node", "selector": selector})
    return members


def _absent(path: Path, levels: Levels, *, is_parent: bool) -> set[str]:
    """Return the labels that a node must not have, lest it belong to another domain."""
    chosen = {level: key for level, key, _ in path}
    found: set[str] = set()
    for level, keys in enumerate(levels):
        if level in chosen:
            found.update(keys[: keys.index(chosen[level])])
        elif level > path[-1][0] or is_parent:
            found.update(keys)
    return found
