"""The kinds of owners that the grouper's role may read: those of the shipped rows.

Run by `make crds`, which names the chart's file; a test fails when the file differs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from bindery.grouper.table.loading import Table, load


def rules(table: Table) -> list[dict[str, object]]:
    """Return the resources of `table` by API group, both sorted."""
    found: dict[str, set[str]] = {}
    for group, kind in _kinds(table):
        found.setdefault(group, set()).add(plural(kind))
    # Pods are in the role anyway.
    found.get("", set()).discard("pods")
    return [
        {"group": group, "resources": sorted(resources)}
        for group, resources in sorted(found.items())
        if resources
    ]


def plural(kind: str) -> str:
    """Return the resource name of a kind, as client-go guesses it (`UnsafeGuessKindToResource`)."""
    name = kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def _kinds(table: Table) -> Iterator[tuple[str, str]]:
    for row in table:
        yield row.match.group, row.match.kind
        if row.pass_to is not None and row.pass_to.object is not None:
            yield row.pass_to.object.group, row.pass_to.object.kind


def write(path: Path) -> None:
    """Write what the chart's role is made from to `path`."""
    text = yaml.safe_dump(rules(load()), sort_keys=False)
    path.write_text(f"# Written by `make crds`.\n{text}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
