"""The fields of the pod API, from the schema that an API server publishes, or from a struct."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_PREFIX = "#/components/schemas/"
_LEAVES = ("IntOrString", "Quantity", "Time", "LabelSelector")


def of_schema(document: Mapping[str, Any]) -> list[str]:
    """Return the paths of all fields of `PodSpec` that have no fields below them."""
    schemas = document["components"]["schemas"]
    return list(_of_schema(schemas, schemas["io.k8s.api.core.v1.PodSpec"], ""))


def _of_schema(schemas: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for choice in schema.get("allOf", ()):
        schema = {**schema, **choice}
    name = str(schema.get("$ref", "")).removeprefix(_PREFIX)
    if name:
        schema = schemas[name]
    if "items" in schema:
        yield from _of_schema(schemas, schema["items"], path)
    elif "properties" not in schema or name.endswith(_LEAVES):
        yield path
    else:
        for key, below in schema["properties"].items():
            yield from _of_schema(schemas, below, f"{path}.{key}" if path else key)


def of_struct(kind: type[msgspec.Struct]) -> set[str]:
    """Return the paths of all fields of a struct, also of those with fields below them."""
    return set(_of_type(inspect.type_info(kind), ""))


def _of_type(kind: inspect.Type, path: str) -> Iterator[str]:
    if path:
        yield path
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _of_type(each, path)
    elif isinstance(kind, inspect.ListType):
        yield from _of_type(kind.item_type, path)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            below = f"{path}.{field.encode_name}" if path else field.encode_name
            yield from _of_type(field.type, below)


def with_value(path: str, value: object) -> dict[str, Any]:
    """Return a spec in which only the field at `path` is set."""
    *above, last = path.split(".")
    spec: Any = {last: value}
    for name in reversed(above):
        spec = {name: [spec] if name in _LISTS else spec}
    return dict(spec)


_LISTS = (*_CONTAINERS, "volumes", "env", "volumeMounts", "sources", "restartPolicyRules")
