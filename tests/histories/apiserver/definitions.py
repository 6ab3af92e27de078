"""Kinds of CustomResourceDefinitions, as read from files such as those in `crds/`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.histories.apiserver.kinds import Kind, Moment, Plain, Problems, Strategy
from tests.histories.apiserver.refusals import NotModelledError
from tests.histories.apiserver.schema import Node

CRDS: Final = Path(__file__).resolve().parents[3] / "crds"


class CustomStrategy(Strategy):
    """The rules of a custom resource, from its definition."""

    unconditional_update = False
    counts_generations = True
    is_custom = True
    status_metadata = False

    def __init__(self, schema: Mapping[str, Any], *, has_status: bool) -> None:
        self._node = Node(schema, is_root=True)
        self.has_status = has_status
        self.is_rewritten = has_status and self._node.has_default("status")

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        """Remove the status, which only its subresource can set."""
        del moment
        if self.has_status:
            new.pop("status", None)

    def default(self, new: Plain) -> bool:
        """Prune the object and set its defaults; numbers are stored as Go writes them."""
        found: list[str] = []
        self._node.shape(new, found)
        return bool(found)

    def prepare_update(self, new: Plain, old: Mapping[str, Any]) -> None:
        """Keep the status."""
        if self.has_status:
            restore(new, old, "status")

    def problems(self, new: Plain) -> Problems:
        """Validate the object by its schema and rules."""
        found: Problems = []
        self._node.check(new, "", lambda path, text: found.append(f"{path[1:]}: {text}"))
        return found


def restore(new: Plain, old: Mapping[str, Any], name: str) -> None:
    """Give a field of `new` its old value."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


@lru_cache(maxsize=8)
def custom_kinds(directory: Path = CRDS) -> tuple[Kind, ...]:
    """Return the kinds that the files in `directory` define; schemas are compiled once."""
    files = sorted(directory.glob("*.yaml"))
    return tuple(_kind(yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files)


def _kind(definition: Mapping[str, Any]) -> Kind:
    spec = definition["spec"]
    (version,) = spec["versions"]
    subresources = frozenset(version.get("subresources", {}))
    if subresources - {"status"}:
        raise NotModelledError(f"subresources {sorted(subresources)} of custom resources")
    schema = version["schema"]["openAPIV3Schema"]
    return Kind(
        spec["group"],
        version["name"],
        spec["names"]["plural"],
        spec["names"]["kind"],
        spec["scope"] == "Namespaced",
        CustomStrategy(schema, has_status=bool(subresources)),
        subresources,
    )
