"""The JSON form of answers: camelCase keys, as in Kubernetes."""

from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic.alias_generators import to_camel

from bindery.scheduler.model.jobs import JobKey

_camel = cache(to_camel)  # an answer has the same few names thousands of times


def to_wire(value: object) -> Any:
    """Return `value` as dictionaries, lists and plain values; a job by its namespace and name."""
    if isinstance(value, JobKey):
        return {"namespace": value.namespace, "name": value.name}
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(f.name): to_wire(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: to_wire(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_wire(each) for each in value]
    if isinstance(value, StrEnum):
        return value.value  # PyYAML knows plain strings only
    return value
