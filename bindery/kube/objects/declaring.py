"""The words in which Bindery's own kinds are declared, as structs.

A struct is the only declaration of a kind. Watches decode by it, its writers use `to_wire`, and
`definitions` makes its CustomResourceDefinition: names, types and defaults from the fields,
descriptions from docstrings, bounds and rules from here. The API server checks bounds and rules,
the decoder does not: an object that was stored under an older definition is still read.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import NODEFAULT, Meta

from bindery.api.states import MOST_GANG_PODS


def schema(**parts: Any) -> Meta:
    """Return a mark that adds `parts` to the schema of a field, by the names of JSON schema."""
    return Meta(extra_json_schema=parts)


def one_of(*words: str) -> Meta:
    """Return a mark: the field has one of `words`."""
    return schema(enum=list(words))


def word_of(kind: type[StrEnum]) -> Meta:
    """Return a mark: the field has a word, and by default the description, of `kind`."""
    return schema(description=kind.__doc__, enum=[each.value for each in kind])


REQUIRED: Final = Meta(extra_json_schema={"x-bindery-required": True})
"""The API server requires the field; the default is for objects that are not stored yet."""
NO_DEFAULT: Final = schema(default=None)
"""The API server leaves the field out, where the struct has a value."""
DATE_TIME: Final = schema(format="date-time")
LIST_BY_TYPE: Final = Meta(
    extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)
"""The list has at most one item of each `type`."""

AT_LEAST_ZERO: Final = schema(minimum=0)
ABOVE_ZERO: Final = schema(minimum=0, exclusiveMinimum=True)

NonNegative = Annotated[int, AT_LEAST_ZERO]
PodCount = Annotated[int, schema(minimum=0, maximum=MOST_GANG_PODS)]
"""A number of pods that a user requires."""
FreeForm = Annotated[
    dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})
]
"""An object with fields that the definition does not name."""


class PrinterColumn(NamedTuple):
    """One column that `kubectl get` shows for a kind."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0


class Kind(NamedTuple):
    """The fields of a CustomResourceDefinition beside its schema."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]


class Validation(NamedTuple):
    """A rule about the fields of a struct."""

    rule: str
    """The rule in CEL."""
    message: str
    holds: Callable[[Any], bool] | None = None
    """The same rule in Python, for files of users; None: only the API server checks it."""


def to_wire(value: Any) -> Any:
    """Return the JSON form of a struct, without fields that have their default value."""
    if isinstance(value, msgspec.Struct):
        return dict(_given(value))
    if isinstance(value, dict):
        return {key: to_wire(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(each) for each in value]
    return msgspec.to_builtins(value)


def _given(struct: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for name, wire_name, default in _fields(type(struct)):
        value = getattr(struct, name)
        if value != default:
            yield wire_name, to_wire(value)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return name, name on the wire and default of each field."""
    return tuple(
        (field.name, field.encode_name, default_of(field)) for field in msgspec.structs.fields(kind)
    )


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of `field`; NODEFAULT if it has none."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
