"""CustomResourceDefinitions, generated from the structs of Bindery's own kinds.

Run by `make crds` for `crds/` and the chart's copy; a test compares the files. The API server
accepts only structural schemas: a type that no such schema can express is an error. Descriptions
are the docstrings of classes, and the texts below their fields.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import NODEFAULT

from bindery.api.names import GROUP, VERSION
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.declaring import PrinterColumn, default_of
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.topology import HyperNode, Topology
from bindery.kube.objects.watched import CustomResource

KINDS: Final[tuple[type[CustomResource], ...]] = (PodGroup, Queue, BindRequest, Topology, HyperNode)

Schema = dict[str, Any]

_SCALARS: Final[dict[Any, Schema]] = {
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer", "format": "int64"},
    str: {"type": "string"},
}
_REQUIRED: Final = "x-bindery-required"
_LAST: Final = ("format", "default", "items", "properties", "additionalProperties")
"""The last keys of a schema: the description of a field comes before its parts."""


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts in full each time, because people read the files."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Return True: no part is an alias."""
        return True


def definition(kind: type[CustomResource]) -> Schema:
    """Return the CustomResourceDefinition of `kind`.

    Raises:
        ValueError: a field has a type that cannot be written in a structural schema.
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
    if "status" in kind.__struct_fields__:
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
        path.write_text(
            f"# Generated from bindery/kube/objects by `make crds`.\n{text}", encoding="utf-8"
        )


def schema_of(kind: type[msgspec.Struct]) -> Schema:
    """Return the structural schema of a part of a kind.

    Raises:
        ValueError: a structural schema cannot express the type of a field.
    """
    properties = {name: each for _, name, each in _properties(kind)}
    found: Schema = {"description": _text(vars(kind).get("__doc__") or ""), "type": "object"}
    required = [name for name, each in properties.items() if each.pop(_REQUIRED, False)]
    if required:
        found["required"] = required
    validations = getattr(kind, "validations", ())
    if validations:
        found["x-kubernetes-validations"] = [
            {"message": each.message, "rule": each.rule} for each in validations
        ]
    return _ordered(found | {"properties": properties})


def _top_level(kind: type[CustomResource]) -> Schema:
    """Return the schema of `kind` with the common fields of Kubernetes objects."""
    found = schema_of(kind)
    given = found["properties"]
    found["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **{part: given[part] for part in ("spec", "status") if part in given},
    }
    return found


def _properties(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str, Schema]]:
    """Yield name, name on the wire and schema of each field."""
    hints = get_type_hints(kind, include_extras=True)
    texts = dict(_texts(kind))
    for field in msgspec.structs.fields(kind):
        found = _schema(hints[field.name], f"{kind.__name__}.{field.name}")
        if field.name in texts:
            found["description"] = texts[field.name]
        default = default_of(field)
        if default is NODEFAULT:
            found[_REQUIRED] = True
        elif isinstance(default, msgspec.Struct):
            # The API server sets defaults for each part of an object separately.
            found.setdefault("default", {})
        elif default not in (None, "", [], {}):  # which are the same as an absent field
            found.setdefault("default", default)
        if found.get("default", default) is None:
            found.pop("default", None)
        yield field.name, field.encode_name, _ordered(found)


def _schema(hint: Any, where: str) -> Schema:
    """Return the schema of a type with its marks."""
    marks: Schema = {}
    if get_origin(hint) is Annotated:
        hint, *given = get_args(hint)
        for each in given:
            marks |= getattr(each, "extra_json_schema", None) or {}
    if "anyOf" in marks:
        return marks
    found = _of_type(hint, where) | marks
    if "description" in marks:
        found["description"] = _text(marks["description"])
    return _ordered(found)


def _ordered(schema: Schema) -> Schema:
    ranks = {key: rank for rank, key in enumerate(_LAST, start=1)}
    return {key: schema[key] for key in sorted(schema, key=lambda key: (ranks.get(key, 0), key))}


def _of_type(hint: Any, where: str) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], f"{where}[]")}
    if origin is dict and arguments[1] is Any:
        return {"type": "object"}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], f"{where}[*]")}
    if origin in (Union, UnionType):
        # `X or null` is X: null fields are omitted in JSON.
        named = [each for each in arguments if each is not NoneType]
        if len(named) == 1:
            return _schema(named[0], where)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return schema_of(hint)
    raise ValueError(f"{where}: {hint} cannot be written in a structural schema")


def _texts(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield the fields of `kind` with a text below them, and the text."""
    for each in reversed(kind.__mro__):
        if not issubclass(each, msgspec.Struct) or each is msgspec.Struct:
            continue
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(declared, ast.ClassDef)
        for field, below in zip(declared.body, declared.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield name, _text(text)


def _text(docstring: str) -> str:
    return " ".join(docstring.split())


def _column(column: PrinterColumn) -> Schema:
    wire: Schema = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.priority:
        wire["priority"] = column.priority
    return wire


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(Path(argument))
