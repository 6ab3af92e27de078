"""Write dataclasses as JSON or YAML with camelCase keys, as Kubernetes does."""

import json
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

import yaml
from pydantic.alias_generators import to_camel

from bindery.api.shown import shown
from bindery.cli.options import Format
from bindery.scheduler.model.jobs import JobKey


def to_wire(value: object) -> Any:
    """Return `value` as dictionaries, lists and plain values; a job by its namespace and name."""
    if isinstance(value, JobKey):
        return {"namespace": value.namespace, "name": value.name}
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(f.name): to_wire(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: to_wire(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_wire(each) for each in value]
    if isinstance(value, StrEnum):
        return value.value  # PyYAML knows plain strings only
    return value


def dump(value: object, form: str) -> str:
    """Return `value` as the text of a JSON or YAML document."""
    if form == Format.JSON:
        return json.dumps(to_wire(value), indent=2) + "\n"
    wire = to_wire(value)
    text = str(yaml.safe_dump(wire, sort_keys=False, allow_unicode=True, width=120))
    if shown(text, len(text), keep="\n") == text:
        return text
    return str(yaml.safe_dump(wire, sort_keys=False, allow_unicode=False, width=120))
