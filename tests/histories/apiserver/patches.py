"""Patches: JSON merge patches, JSON patches and strategic merge patches.

Each function changes `target`, which must be a copy. Of the directives of strategic merge patches
only `$setElementOrder` is modelled. JSON patches are not left to a library: Kubernetes' own differ
from RFC 6902, and the product uses four operations.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.histories.apiserver.refusals import NotModelledError

Plain = dict[str, Any]

_ORDER: Final = "$setElementOrder/"


class PatchError(Exception):
    """A JSON patch cannot be applied."""


def merge(target: Plain, patch: Mapping[str, Any]) -> None:
    """Apply a merge patch (RFC 7386)."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            here = target.get(name)
            if not isinstance(here, dict):
                here = target[name] = {}
            merge(here, value)
        else:
            target[name] = value


def strategic(
    target: Plain, patch: Mapping[str, Any], keys: Mapping[str, str], path: str = ""
) -> None:
    """Apply a strategic merge patch. `keys`: path of a merged list -> the key of its elements."""
    for name, value in patch.items():
        if name.startswith(_ORDER):
            continue
        if name.startswith("$"):
            raise NotModelledError(f"strategic merge patch with {name}")
        here = f"{path}.{name}" if path else name
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            inner = target.get(name)
            if not isinstance(inner, dict):
                inner = target[name] = {}
            strategic(inner, value, keys, here)
        elif isinstance(value, list) and here in keys:
            target[name] = _merged(target.get(name) or [], value, keys, here)
        else:
            target[name] = value
    for name, order in patch.items():
        if name.startswith(_ORDER):
            word = name.removeprefix(_ORDER)
            _order(target.get(word) or [], order, keys[f"{path}.{word}" if path else word])


def _order(elements: list[Any], order: list[Any], key: str) -> None:
    """Bring the elements that `order` names into its order; the others keep their places."""
    ranks = {each.get(key) if key else each: rank for rank, each in enumerate(order)}
    named = [each for each in elements if (each.get(key) if key else each) in ranks]
    named.sort(key=lambda each: ranks[each.get(key) if key else each])
    ordered = iter(named)
    for index, each in enumerate(elements):
        if (each.get(key) if key else each) in ranks:
            elements[index] = next(ordered)


def _merged(old: list[Any], new: list[Any], keys: Mapping[str, str], path: str) -> list[Any]:
    """Return the merged list, in the order that Kubernetes gives it."""
    key = keys[path]
    if not key:  # a set of words
        return _ordered([each for each in old if each not in new], list(new), old)
    changed = []
    for element in new:
        if key not in element:
            raise PatchError(f"map: {element} does not contain declared merge key: {key}")
        same = [each for each in old if each.get(key) == element[key]]
        found: Plain = same[0] if same else {}
        strategic(found, element, keys, path)
        changed.append(found)
    words = [each.get(key) for each in changed]
    merged = {each.get(key): each for each in (*old, *changed)}
    order = [each.get(key) for each in old]
    rest = [word for word in order if word not in words]
    return [merged[word] for word in _ordered(rest, words, order)]


def _ordered(left: list[Any], right: list[Any], order: list[Any]) -> list[Any]:
    """Merge two lists: an element of `left` comes first if the old list `order` has it so."""
    merged = []
    while left and right:
        is_less = right[0] in order and order.index(left[0]) < order.index(right[0])
        merged.append((left if is_less else right).pop(0))
    return merged + left + right


def apply_json(target: Any, operations: list[Mapping[str, Any]]) -> Any:
    """Apply a JSON patch (RFC 6902); return the result.

    Raises:
        PatchError: an operation cannot be applied, or a test fails.
    """
    for operation in operations:
        name, path = operation.get("op"), operation.get("path")
        change = _OPERATIONS.get(str(name))
        if change is None or not isinstance(path, str):
            raise NotModelledError(f"JSON patch operation {dict(operation)}")
        if not path:
            raise NotModelledError("a JSON patch of the whole document")
        parent, key = _place(target, path)
        change(parent, key, operation)
    return target


def _place(document: Any, path: str) -> tuple[Any, str]:
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in parents:
        document = _get(document, part)
    if not isinstance(document, dict | list):
        raise PatchError(f"{path} does not exist")
    return document, last


def _get(parent: Any, key: str) -> Any:
    if isinstance(parent, dict) and key in parent:
        return parent[key]
    if isinstance(parent, list):
        return parent[_index(parent, key)]
    raise PatchError(f"{key} does not exist")


def _index(parent: list[Any], key: str, most: int | None = None) -> int:
    if not key.isdecimal() or int(key) >= (len(parent) if most is None else most):
        raise PatchError(f"{key} is no index of a list with {len(parent)} elements")
    return int(key)


def _add(parent: Any, key: str, operation: Mapping[str, Any]) -> None:
    if isinstance(parent, dict):
        parent[key] = operation.get("value")
    elif key == "-":
        parent.append(operation.get("value"))
    else:
        parent.insert(_index(parent, key, len(parent) + 1), operation.get("value"))


def _remove(parent: Any, key: str, _operation: Mapping[str, Any]) -> None:
    _get(parent, key)
    del parent[key if isinstance(parent, dict) else int(key)]


def _replace(parent: Any, key: str, operation: Mapping[str, Any]) -> None:
    # Kubernetes also replaces a missing member of an object, against RFC 6902.
    if isinstance(parent, list):
        parent[_index(parent, key)] = operation.get("value")
    else:
        parent[key] = operation.get("value")


def _test(parent: Any, key: str, operation: Mapping[str, Any]) -> None:
    wanted = operation.get("value")
    # A missing member equals null.
    found = parent.get(key) if isinstance(parent, dict) else _get(parent, key)
    if found != wanted:
        raise PatchError(f"testing value {operation['path']} failed")


_OPERATIONS: dict[str, Callable[[Any, str, Mapping[str, Any]], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
}
