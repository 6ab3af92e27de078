"""The plugins with their arguments, and the keys of row files, that the chart checks values by.

`make crds` writes the chart's file; a test fails when it differs.
"""

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from bindery.api.names import BINDER_PLUGINS, SCHEDULER_PLUGINS
from bindery.api.plugins import NoArguments
from bindery.api.spelling import FORMER_NAMES
from bindery.grouper.table.rows import Row, RowFile

_GROUPS: Final = {"scheduler": SCHEDULER_PLUGINS, "binder": BINDER_PLUGINS}
Schema = dict[str, Any]


def known_names() -> dict[str, Any]:
    """Return what there is, as the chart's templates read it."""
    return {
        "plugins": {component: _plugins(group) for component, group in _GROUPS.items()},
        "formerNames": dict(FORMER_NAMES),
        "rowFileKeys": _keys(RowFile),
        "rowKeys": _keys(Row),
    }


def _plugins(group: str) -> dict[str, dict[str, Schema]]:
    """Return the shipped plugins by name, each with its arguments."""
    points = [each for each in entry_points(group=group) if each.value.startswith("bindery.")]
    return {
        point.name: _arguments(getattr(point.load(), "arguments", NoArguments))
        for point in sorted(points, key=lambda each: each.name)
    }


def _arguments(model: type[BaseModel]) -> dict[str, Schema]:
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    return {
        name: _value(field, definitions) for name, field in schema.get("properties", {}).items()
    }


def _value(field: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return the JSON types of a value, and the values that there are if they are listed."""
    choices = [_resolved(each, definitions) for each in field.get("anyOf", [field])]
    found: Schema = {"types": sorted({each["type"] for each in choices})}
    if all("enum" in each or each["type"] == "null" for each in choices):
        found["enum"] = [value for each in choices for value in each.get("enum", ())]
    return found


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    reference = schema.get("$ref")
    return definitions[reference.rpartition("/")[2]] if reference else schema


def _keys(model: type[BaseModel]) -> list[str]:
    return sorted(field.alias or name for name, field in model.model_fields.items())


def write(path: Path) -> None:
    """Write what the chart checks values by to `path`."""
    text = yaml.safe_dump(known_names(), sort_keys=False, default_flow_style=None, width=110)
    path.write_text(f"# Written by `make crds`.\n{text}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
