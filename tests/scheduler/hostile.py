"""Hostile objects: any content that a watched kind can have, and malformed content.

`bodies(resource)` draws JSON by the fields that the scheduler reads, with values that have harmed
programs before: huge numbers, endless digits, control characters, names of other objects.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from bindery.api import gpushare, names
from bindery.api.hami import wishes
from bindery.api.hami.vendortable import VENDORS
from bindery.kube.objects.resources import PODS, Resource

WORDS = [
    "",
    "n",
    "odd",
    "good",
    "default",
    "team",
    "bindery",
    "1",
    "-1",
    "0.5",
    "1e400",
    "NaN",
    "8Ei",
    "9" * 30,
    "9" * 5_000,
    "uid-good-" + "9" * 5_000,
    "٣",
    "\x1b[2J\u202e",
    "true",
    "False",
    "Ready",
    "Running",
    "Pending",
    "Failed",
    "Succeeded",
    "Closed",
    "PodScheduled",
    "Scheduled",
    "Always",
    "Never",
    "DoNotSchedule",
    "In",
    "Gt",
    "Exists",
    "NoSchedule",
    "Immutable",
    "WaitForFirstConsumer",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-13-45T99:99:99Z",
    "{}",
    "[1,",
    "[" * 3_000,
    "device.attributes['a'].b == " * 40,
]
KEYS = [
    "cpu",
    "memory",
    "gpu",
    "pods",
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "a",
    *(value for name, value in vars(names).items() if name.endswith(("_ANNOTATION", "_LABEL"))),
    *sorted(gpushare.ANNOTATIONS),
    *sorted(wishes.keys(VENDORS)),
]
INTEGERS = [-(2**63), -1, 0, 1, 2, 3, 1000, 2**31, 2**53, 2**63 - 1, 2**63, 10**30]

_texts = st.sampled_from(WORDS) | st.text(max_size=6)
_json = st.recursive(
    st.none() | st.booleans() | st.sampled_from(INTEGERS) | _texts,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_texts, below, max_size=3),
    max_leaves=8,
)


def bodies(resource: Resource[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for objects of `resource` called `odd`, as JSON values."""
    fields = _by_type(inspect.type_info(resource.type), 0)
    return fields.map(lambda body: _called(body, resource))


def _called(body: Any, resource: Resource[Any]) -> dict[str, Any]:
    """Return `body` with the metadata without which an API server stores nothing."""
    content: dict[str, Any] = dict(body) if isinstance(body, Mapping) else {"spec": body}
    meta = content.get("metadata")
    metadata = dict(meta) if isinstance(meta, Mapping) else {}
    metadata |= {"name": "odd", "uid": f"uid-odd-{resource.plural}", "resourceVersion": "5"}
    if resource.namespaced:
        metadata["namespace"] = "team"
    else:
        metadata.pop("namespace", None)
    if resource is PODS and isinstance(content.get("spec", {}), Mapping):
        content["spec"] = {**content.get("spec", {}), "schedulerName": "bindery"}
    return content | {"metadata": metadata}


_MOST_LEVELS = 9
_MISFITS = 60
"""One of so many values is not of its field's type."""
_PLAIN: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.IntType: st.sampled_from(INTEGERS),
    inspect.FloatType: st.sampled_from([-1.0, 0.0, 0.5, 1e300, *INTEGERS]),
    inspect.BoolType: st.booleans(),
    inspect.NoneType: st.none(),
    inspect.StrType: _texts,
}


def _by_type(kind: inspect.Type, level: int) -> st.SearchStrategy[Any]:
    """Return a strategy for values of `kind`, now and then for something else."""
    if level > _MOST_LEVELS:
        return st.none()
    drawn = _fitting(kind, level)
    if level < 2:
        return drawn
    return st.integers(0, _MISFITS).flatmap(lambda number: _json if number == 7 else drawn)


def _deferred(kind: inspect.Type, level: int) -> st.SearchStrategy[Any]:
    """Return what `_by_type` returns, built at the first draw: types may contain themselves."""
    return st.deferred(lambda: _by_type(kind, level))


def _fitting(kind: inspect.Type, level: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, inspect.StructType):
        return _struct(kind, level)
    if isinstance(kind, inspect.DictType):
        values = _deferred(kind.value_type, level + 1)
        return st.dictionaries(st.sampled_from(KEYS), values, max_size=4)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return st.lists(_deferred(kind.item_type, level + 1), max_size=3)
    if isinstance(kind, inspect.UnionType):
        return st.one_of([_fitting(each, level) for each in kind.types])
    return _PLAIN.get(type(kind), _json)


def _struct(kind: inspect.StructType, level: int) -> st.SearchStrategy[Any]:
    fields = {each.encode_name: _deferred(each.type, level + 1) for each in kind.fields}
    required = {each.encode_name for each in kind.fields if each.required}
    return st.fixed_dictionaries(
        {name: value for name, value in fields.items() if name in required},
        optional={name: value for name, value in fields.items() if name not in required},
    )


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return the watch event about an object with `body`."""
    return msgspec.json.encode({"type": "ADDED", "object": _encodable(body)})


def _encodable(value: Any) -> Any:
    """Return `value` with numbers that do not fit 64 bits as JSON writes them."""
    if isinstance(value, Mapping):
        return {key: _encodable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.Raw(str(value).encode())
    return value
