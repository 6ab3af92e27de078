"""Field and label selectors of lists and watches, and label selectors in objects."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.refusals import bad_request

Matches = Callable[[Mapping[str, Any]], bool]
_Labels = Mapping[str, str]

_ENTRY: Final = re.compile(r"\s*((?:[^,()]|\([^)]*\))+)\s*(?:,|$)")
_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_FIELD: Final = re.compile(r"([^=!]+)(==|!=|=)(.*)")


def everything(_object: Mapping[str, Any]) -> bool:
    """Select every object."""
    return True


@lru_cache(maxsize=4096)
def selection(kind: Kind, field_selector: str, label_selector: str) -> Matches:
    """Return what selects objects of `kind`.

    Raises:
        Refusal: a selector is malformed, or the kind has no such field selector.
    """
    fields = [_field(kind, entry) for entry in field_selector.split(",") if entry]
    labels = _labels(label_selector)
    if not fields and labels is None:
        return everything

    def matches(value: Mapping[str, Any]) -> bool:
        if labels is not None and not labels(value["metadata"].get("labels") or {}):
            return False
        return all(field(value) for field in fields)

    return matches


def _field(kind: Kind, entry: str) -> Matches:
    parsed = _FIELD.fullmatch(entry)
    if parsed is None:
        raise bad_request(f"invalid selector: {entry!r}; can't understand it")
    name, sign, wanted = parsed.groups()
    default = (
        "" if name in ("metadata.name", "metadata.namespace") else kind.strategy.fields.get(name)
    )
    if default is None or (name == "metadata.namespace" and not kind.namespaced):
        raise bad_request(f'field label not supported: "{name}"')
    path, is_equal = name.split("."), sign != "!="

    def matches(value: Any) -> bool:
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            value = str(value).lower()
        return ((value or default) == wanted) is is_equal

    return matches


def _labels(text: str) -> Callable[[_Labels], bool] | None:
    requirements: list[Callable[[_Labels], bool]] = []
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise bad_request(f"unable to parse requirement: {text!r}")
        requirements.append(_requirement(entry[1].strip()))
        at = entry.end()
    if not requirements:
        return None
    return lambda labels: all(each(labels) for each in requirements)


def _requirement(text: str) -> Callable[[_Labels], bool]:
    of_set = _SET.fullmatch(text)
    if of_set is not None:
        key, word, inner = of_set.groups()
        values = {each.strip() for each in inner.split(",")}
        if word == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    equal = _FIELD.fullmatch(text)
    if equal is not None:
        key, sign, value = (each.strip() for each in equal.groups())
        if sign == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if text.startswith("!"):
        absent = text[1:].strip()
        return lambda labels: absent not in labels
    if re.fullmatch(r"[A-Za-z0-9._/-]+", text) is None:
        raise bad_request(f"unable to parse requirement: {text!r}")
    return lambda labels: text in labels


def selects(selector: Mapping[str, Any] | None, labels: _Labels) -> bool:
    """Whether a `LabelSelector` in an object selects `labels`; None selects nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: _Labels) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
