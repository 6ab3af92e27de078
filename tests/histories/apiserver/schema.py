"""Structural schemas of CustomResourceDefinitions: pruning, defaults, validation and CEL rules.

A schema is compiled once into a tree of `Node`s. `Node.shape` prunes and defaults an object in
place, and `Node.check` returns what is wrong with it.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

import msgspec
from cel_expr_python import cel

from tests.histories.apiserver.kinds import words
from tests.histories.apiserver.refusals import NotModelledError

Report = Callable[[str, str], None]
"""Takes the path of a field and what is wrong with it."""

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_KNOWN: Final = words(
    """
    description type format default enum required properties additionalProperties items
    anyOf minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern
    minItems maxItems minProperties maxProperties nullable x-kubernetes-validations
    x-kubernetes-int-or-string x-kubernetes-preserve-unknown-fields x-kubernetes-list-type
    x-kubernetes-list-map-keys
    """
)
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_IN_HAS = re.compile(r"has\(self\.(\w+)\)")
_USED = re.compile(r"self\.(\w+)")


@cache
def _environment() -> cel.Env:
    return cel.NewEnv(variables={"self": cel.Type.DYN})


class Rule:
    """A CEL rule on one object. Rules on the earlier version (`oldSelf`) are not modelled."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        text: str = declared["rule"]
        if "oldSelf" in text or set(declared) - {"rule", "message"}:
            raise NotModelledError(f"CEL rule {dict(declared)}")
        self.message: str = declared.get("message", f"failed rule: {text}")
        self._program = _environment().compile(text)
        rest = _IN_HAS.sub("", text)
        only_asked = set(_IN_HAS.findall(text)) - set(_USED.findall(rest))
        self._whole = None if "self" in re.sub(r"self\.\w+", "", rest) else only_asked
        self._named = frozenset(_USED.findall(text))

    def holds(self, value: Mapping[str, Any]) -> bool:
        """Whether `value` obeys the rule; a failure of the expression counts as no."""
        if self._whole is not None:
            # Fields that the rule does not read are not converted to CEL values.
            value = {
                name: True if name in self._whole else value[name]
                for name in self._named
                if name in value
            }
        return self._program.eval(data={"self": value}).plain_value() is True


class Node:
    """One schema of the tree."""

    def __init__(self, schema: Mapping[str, Any], *, is_root: bool = False) -> None:
        unknown = set(schema) - _KNOWN
        if unknown or schema.get("anyOf", _INT_OR_STRING) != _INT_OR_STRING:
            raise NotModelledError(f"schema with {sorted(unknown) or schema['anyOf']}")
        self._schema = schema
        self.type: str = schema.get("type", "")
        self.preserves = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.nullable = bool(schema.get("nullable"))
        self.properties = {
            name: Node(each)
            for name, each in schema.get("properties", {}).items()
            if not (is_root and name in _META)
        }
        self._required: list[str] = schema.get("required", [])
        more = schema.get("additionalProperties")
        self.more = Node(more) if isinstance(more, dict) else None
        self.items = Node(schema["items"]) if "items" in schema else None
        self._defaults = [
            (name, msgspec.json.encode(_as_go(each._schema["default"])))
            for name, each in self.properties.items()
            if "default" in each._schema
        ]
        self._checks = [make(schema[name], schema) for name, make in _MAKERS if name in schema]
        self._rules = [Rule(each) for each in schema.get("x-kubernetes-validations", ())]
        self._keys: list[str] = schema.get("x-kubernetes-list-map-keys", [])
        self._kept = _META if is_root else frozenset()
        accepts = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else ()
        wanted = accepts or ((self.type,) if self.type else ())
        self._types = [_TYPES[name] for name in wanted]
        self._wanted = " or ".join(wanted)
        self._is_leaf = not (self.properties or self.more or self.items or self._defaults)

    def has_default(self, name: str) -> bool:
        """Whether a field has a default."""
        return any(name == each for each, _ in self._defaults)

    def shape(self, value: Any, retyped: list[str]) -> None:
        """Remove unknown fields, set defaults and make whole floats integers, in place.

        The names of fields with a whole float are added to `retyped`.
        """
        if isinstance(value, list):
            if self.items is not None and not self.items._is_bare:
                for each in value:
                    self.items.shape(each, retyped)
        elif isinstance(value, dict):
            self._shape_object(value, retyped)

    @property
    def _is_bare(self) -> bool:
        return self._is_leaf and (self.type != "object" or self.preserves)

    def _shape_object(self, value: dict[str, Any], retyped: list[str]) -> None:
        for name, each in value.items():
            if isinstance(each, float) and each.is_integer():
                value[name] = int(each)
                retyped.append(name)
        if self.more is not None:
            for each in value.values():
                self.more.shape(each, retyped)
            return
        self._prune(value)
        for name, default in self._defaults:
            if name not in value:
                value[name] = msgspec.json.decode(default)
        for name, each in value.items():
            node = self.properties.get(name)
            if node is not None and not node._is_bare:
                node.shape(each, retyped)

    def _prune(self, value: dict[str, Any]) -> None:
        for name in list(value):
            node = self.properties.get(name)
            if node is None:
                if name not in self._kept and not self.preserves:
                    del value[name]
            elif value[name] is None and not node.nullable:
                del value[name]

    def check(self, value: Any, path: str, report: Report) -> None:
        """Report all that is wrong with `value`."""
        if value is None and self.nullable:
            return
        if self._types and not any(fits(value) for fits in self._types):
            report(path, f"must be of type {self._wanted}")
            return
        for check in self._checks:
            problem = check(value)
            if problem:
                report(path, problem)
        if isinstance(value, dict):
            self._check_object(value, path, report)
        elif isinstance(value, list):
            self._check_list(value, path, report)

    def _check_object(self, value: dict[str, Any], path: str, report: Report) -> None:
        for name in self._required:
            if name not in value:
                report(f"{path}.{name}", "Required value")
        for name, each in value.items():
            node = self.properties.get(name, self.more)
            if node is not None:
                node.check(each, f"{path}.{name}", report)
        for rule in self._rules:
            if not rule.holds(value):
                report(path, rule.message)

    def _check_list(self, value: list[Any], path: str, report: Report) -> None:
        if self.items is not None:
            for number, each in enumerate(value):
                self.items.check(each, f"{path}[{number}]", report)
        if self._keys:
            keys = [
                tuple(each.get(key) for key in self._keys)
                for each in value
                if isinstance(each, dict)
            ]
            if len(set(keys)) < len(keys):
                report(path, "Duplicate value")


def _as_go(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


_META: Final = frozenset(("apiVersion", "kind", "metadata"))

Check = Callable[[Any], str]
"""Returns what is wrong with a value of the right type, or ""."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _minimum(limit: float, schema: Mapping[str, Any]) -> Check:
    if schema.get("exclusiveMinimum"):
        return lambda v: f"should be greater than {limit}" if _is_number(v) and v <= limit else ""
    return lambda v: f"should be at least {limit}" if _is_number(v) and v < limit else ""


def _maximum(limit: float, schema: Mapping[str, Any]) -> Check:
    if schema.get("exclusiveMaximum"):
        return lambda v: f"should be less than {limit}" if _is_number(v) and v >= limit else ""
    return lambda v: f"should be at most {limit}" if _is_number(v) and v > limit else ""


def _length(
    type_: type[str | list[Any] | dict[str, Any]], *, is_most: bool
) -> Callable[[int, Mapping[str, Any]], Check]:
    def make(limit: int, _schema: Mapping[str, Any]) -> Check:
        if is_most:
            return lambda v: f"more than {limit}" if isinstance(v, type_) and len(v) > limit else ""
        return lambda v: f"fewer than {limit}" if isinstance(v, type_) and len(v) < limit else ""

    return make


def _pattern(text: str, _schema: Mapping[str, Any]) -> Check:
    # `$` of Go does not match before a newline at the end.
    compiled = re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", text))
    return lambda v: (
        f"should match {text!r}" if isinstance(v, str) and compiled.search(v) is None else ""
    )


def _enum(values: list[Any], _schema: Mapping[str, Any]) -> Check:
    return lambda v: "" if v in values else f"Unsupported value: {v!r}"


def _format(name: str, _schema: Mapping[str, Any]) -> Check:
    if name == "int64":
        return lambda v: "" if not _is_number(v) or -(2**63) <= v < 2**63 else "is no int64"
    if name == "date-time":
        return lambda v: "" if not isinstance(v, str) or is_time(v) else "must be a date-time"
    raise NotModelledError(f"format {name}")


_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def is_time(text: str) -> bool:
    """Whether `text` is a time as in RFC 3339."""
    if _TIME.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text[:19])
    except ValueError:
        return False
    return True


_MAKERS: Final[list[tuple[str, Callable[[Any, Mapping[str, Any]], Check]]]] = [
    ("minimum", _minimum),
    ("maximum", _maximum),
    ("minLength", _length(str, is_most=False)),
    ("maxLength", _length(str, is_most=True)),
    ("minItems", _length(list, is_most=False)),
    ("maxItems", _length(list, is_most=True)),
    ("minProperties", _length(dict, is_most=False)),
    ("maxProperties", _length(dict, is_most=True)),
    ("pattern", _pattern),
    ("enum", _enum),
    ("format", _format),
]
