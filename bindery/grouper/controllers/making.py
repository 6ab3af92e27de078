"""What the makers of objects have in common: manifests of children, and reading their owner."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from bindery.grouper.table.facts import KubeObject, mapping, mappings
from bindery.grouper.table.paths import integer

Body = dict[str, Any]
"""An object as its manifest has it."""
Find = Callable[[str, str], KubeObject | None]
"""Returns the object of a kind and a name, if it was given."""
Maker = Callable[[KubeObject, Find], Iterator[Body]]
"""Yields the objects that the controller of an object creates."""
MOST_PODS: Final = 50_000
"""How many pods of one controller are looked at."""


class ExpansionError(ValueError):
    """An object has a value that its controller cannot use."""


class NotKnownError(Exception):
    """What the controller of an object creates depends on something that is not given."""


def body(api_version: str, kind: str, name: str, template: Mapping[str, Any]) -> Body:
    """Return the manifest of a child; `template`: with its `metadata` and `spec`."""
    given = mapping(template.get("metadata"))
    metadata = {key: dict(mapping(given.get(key))) for key in ("labels", "annotations")}
    spec = dict(mapping(template.get("spec")))
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def pod(name: str, template: object, labels: Mapping[str, str] | None = None) -> Body:
    """Return the manifest of a pod of `template` with `labels`.

    Raises:
        NotKnownError: the template has no containers.
    """
    found = mapping(template)
    if not mapping(found.get("spec")).get("containers"):
        raise NotKnownError("it has no pod template with containers")
    made = body("v1", "Pod", name, found)
    made["metadata"]["labels"] |= labels or {}
    return made


def pods(item: KubeObject, count: int, template: object) -> Iterator[Body]:
    """Yield `count` equal pods of `item`."""
    for index in range(count):
        yield pod(f"{name_of(item)}-{index}", template)


def name_of(item: KubeObject) -> str:
    """Return the name of an object."""
    return str(mapping(item.get("metadata")).get("name") or "")


def at(item: object, *keys: str) -> Any:
    """Return what is at `keys` of `item`; None if there is nothing."""
    for key in keys:
        item = mapping(item).get(key)
    return item


def part(item: object, *keys: str) -> Mapping[str, Any]:
    """Return the mapping at `keys` of `item`; empty if there is none."""
    return mapping(at(item, *keys))


def parts(item: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at `keys` of `item`."""
    return mappings(at(item, *keys))


def number(item: object, *keys: str, default: int) -> int:
    """Return the number at `keys` of `item`, or `default`.

    Raises:
        PathError: it is not a whole number.
        ExpansionError: it is negative, or too large.
    """
    found = at(item, *keys)
    return demanded(default if found is None else integer(found), ".".join(keys))


def demanded(count: int, where: str) -> int:
    """Return `count`, a number of pods.

    Raises:
        ExpansionError: it is negative, or too large.
    """
    if count < 0:
        raise ExpansionError(f"{where}: a number of 0 or more is expected")
    if count > MOST_PODS:
        raise ExpansionError(f"{where}: at most {MOST_PODS:,} pods are supported")
    return count
