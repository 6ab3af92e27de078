"""CustomResourceDefinitions, generated from the pydantic models.

Run by `make crds` for `crds/` and the chart's copy; a test compares the files. The API server
accepts only structural schemas, a narrow part of JSON schema. A model that needs more causes an
error; no part is silently omitted.
"""

import sys
from pathlib import Path
from typing import Final, TypeGuard

import yaml
from pydantic import JsonValue

from bindery.api.base import CustomResource, PrinterColumn
from bindery.api.bindrequest import BindRequest
from bindery.api.names import GROUP, VERSION
from bindery.api.podgroup import PodGroup
from bindery.api.queue import Queue
from bindery.api.topology import HyperNode, Topology

KINDS: Final[tuple[type[CustomResource], ...]] = (
    PodGroup,
    Queue,
    BindRequest,
    Topology,
    HyperNode,
)

Schema = dict[str, JsonValue]

_KEPT: Final = frozenset(
    {
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
        "type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }
)
_TRANSLATED: Final = frozenset(
    {
        "additionalProperties",
        "default",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "properties",
    }
)
_DROPPED: Final = frozenset({"title"})

_QUANTITY_MARK: Final = "x-bindery-quantity"
_QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    # The grammar of apimachinery's resource.Quantity without a sign: only -1, unlimited, is below
    # zero. `pattern` applies to strings, `minimum` to integers.
    "pattern": r"^(-1|\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?)$",
    "minimum": -1,
}


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts in full each time, because people read the files."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Return True: no part is an alias."""
        return True


def definition(kind: type[CustomResource]) -> Schema:
    """Return the CustomResourceDefinition of `kind`.

    Raises:
        ValueError: a model uses a part of JSON schema that the API server does not accept.
    """
    info = kind.kind_info
    names: Schema = {
        "kind": info.kind,
        "listKind": f"{info.kind}List",
        "plural": info.plural,
        "singular": info.kind.lower(),
        "shortNames": list(info.short_names),
        "categories": ["bindery"],
    }
    version: Schema = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _top_level(kind)},
        "additionalPrinterColumns": [_column(column) for column in info.columns],
    }
    if "status" in kind.model_fields:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{info.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def write(directory: Path) -> None:
    """Write one file for each kind into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        text = yaml.dump(
            definition(kind), Dumper=_Dumper, sort_keys=False, width=100, default_flow_style=False
        )
        path = directory / f"{kind.kind_info.plural}.yaml"
        path.write_text(f"# Generated from bindery/api by `make crds`.\n{text}", encoding="utf-8")


def _top_level(kind: type[CustomResource]) -> Schema:
    """Return the schema of `kind` with the common fields of Kubernetes objects."""
    generated = kind.model_json_schema(by_alias=True)
    definitions = generated.pop("$defs", {})
    schema = _structural(generated, definitions, kind.__name__)
    properties = _mapping(schema["properties"])
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **properties,
    }
    return schema


def _structural(schema: Schema, definitions: Schema, where: str) -> Schema:
    """Return `schema` in the API server's form: no references, no unions, no titles."""
    schema = _without_union(_inlined(schema, definitions), definitions, where)
    if schema.pop(_QUANTITY_MARK, False):
        said = [key for key in ("description", "default") if schema.get(key) is not None]
        described: Schema = {key: schema[key] for key in said}
        return described | _QUANTITY
    unknown = schema.keys() - _KEPT - _TRANSLATED - _DROPPED
    if unknown:
        raise ValueError(f"{where}: {sorted(unknown)} cannot be written in a structural schema")
    result: Schema = {key: value for key, value in schema.items() if key in _KEPT}
    result |= _exclusive_bounds(schema, where)
    if "description" in result:
        result["description"] = " ".join(str(result["description"]).split())
    if result.get("type") == "integer":
        result["format"] = "int64"
    if _is_worth_saying(schema.get("default")):
        # The API server sets defaults for each part of an object separately.
        result["default"] = {} if "properties" in schema else schema["default"]
    if "items" in schema:
        result["items"] = _structural(_mapping(schema["items"]), definitions, f"{where}[]")
    if "properties" in schema:
        result["properties"] = {
            name: _structural(_mapping(value), definitions, f"{where}.{name}")
            for name, value in _mapping(schema["properties"]).items()
        }
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        # `false` is omitted: the API server drops or refuses unknown fields anyway.
        result["additionalProperties"] = _structural(others, definitions, f"{where}[*]")
    return result


def _exclusive_bounds(schema: Schema, where: str) -> Schema:
    """Return `schema` with exclusive bounds in the form of OpenAPI 3.0: a number and a flag."""
    bounds: Schema = {}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive not in schema:
            continue
        if bound in schema:
            raise ValueError(f"{where}: {bound} and {exclusive} exclude each other")
        bounds |= {bound: schema[exclusive], exclusive: True}
    return bounds


def _inlined(schema: Schema, definitions: Schema) -> Schema:
    """Return `schema` with its reference replaced; keys beside the reference have priority."""
    reference = schema.get("$ref")
    if reference is None:
        return dict(schema)
    target = _mapping(definitions[str(reference).rpartition("/")[2]])
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_inlined(target, definitions), **beside}


def _without_union(schema: Schema, definitions: Schema, where: str) -> Schema:
    """Return `schema` with `X or null` as X: null fields are omitted in JSON."""
    if _QUANTITY_MARK in schema or "anyOf" not in schema:
        return schema
    choices = schema.pop("anyOf")
    named = [
        choice
        for choice in (choices if isinstance(choices, list) else [])
        if isinstance(choice, dict) and choice.get("type") != "null"
    ]
    if len(named) != 1:
        raise ValueError(f"{where}: a union cannot be written in a structural schema")
    return {**_inlined(named[0], definitions), **schema}


def _is_worth_saying(default: JsonValue) -> bool:
    """Return whether `default` differs from an absent field."""
    return default is not None and default not in ("", [])


def _column(column: PrinterColumn) -> Schema:
    wire: Schema = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.priority:
        wire["priority"] = column.priority
    return wire


def _is_mapping(value: JsonValue) -> TypeGuard[Schema]:
    return isinstance(value, dict)


def _mapping(value: JsonValue) -> Schema:
    if not _is_mapping(value):
        raise ValueError(f"a JSON schema is expected, not {value!r}")
    return value


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(Path(argument))
