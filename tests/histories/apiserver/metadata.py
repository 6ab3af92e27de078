"""The rules for `metadata`, which are the same for all kinds."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tests.histories.apiserver.kinds import Plain, Problems, words

_WORD: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
DNS_LABEL: Final = re.compile(_LABEL)
_QUALIFIED: Final = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?{_WORD}")
_VALUE: Final = re.compile(rf"({_WORD})?")
_SEGMENT: Final = re.compile(r"(?!\.{1,2}\Z)[^/%]+")
"""Budgets may have any name that can stand in a path."""
_MOST_ANNOTATIONS: Final = 256 * 1024
_IMMUTABLE: Final = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_PLAIN_FINALIZERS: Final = frozenset(("orphan", "foregroundDeletion", "kubernetes"))

KNOWN: Final = words(
    """
    name generateName namespace uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences
    finalizers
    """
)


def problem_of_name(name: str, pattern: re.Pattern[str]) -> str:
    """Return why `name` is no name of an object, or ""."""
    most = {DNS_LABEL: 63, _SUBDOMAIN: 253}.get(pattern)
    if (most is not None and len(name) > most) or pattern.fullmatch(name) is None:
        return f"metadata.name: Invalid value: {name!r}: a lowercase RFC 1123 name is required"
    return ""


def pattern_of_name(plural: str) -> re.Pattern[str]:
    """Return the pattern of the names of a kind."""
    if plural == "poddisruptionbudgets":
        return _SEGMENT
    return DNS_LABEL if plural == "namespaces" else _SUBDOMAIN


def has_right_types(metadata: Any) -> bool:
    """Whether the fields of `metadata` have the types of `ObjectMeta`."""
    if not isinstance(metadata, dict):
        return False
    for name in ("labels", "annotations"):
        words = metadata.get(name)
        if words is not None and not (
            isinstance(words, dict) and all(isinstance(each, str) for each in words.values())
        ):
            return False
    for name in ("finalizers", "ownerReferences"):
        if not isinstance(metadata.get(name) or [], list):
            return False
    return all(
        isinstance(metadata.get(name) or "", str)
        for name in ("name", "generateName", "namespace", "uid", "resourceVersion")
    )


def cleaned(metadata: Plain) -> Plain:
    """Return `metadata` without unknown and empty fields."""
    return {name: value for name, value in metadata.items() if value and name in KNOWN} | (
        {"deletionGracePeriodSeconds": 0} if metadata.get("deletionGracePeriodSeconds") == 0 else {}
    )


def problems(metadata: Mapping[str, Any], *, strict: bool) -> Problems:
    """Return why labels, annotations, finalizers or owner references are invalid."""
    found = [
        f"metadata.labels: Invalid value: {key!r}={value!r}"
        for key, value in (metadata.get("labels") or {}).items()
        if not is_qualified(key) or len(value) > 63 or _VALUE.fullmatch(value) is None
    ]
    annotations = metadata.get("annotations") or {}
    found += [
        f"metadata.annotations: Invalid value: {key!r}"
        for key in annotations
        if not is_qualified(key.lower())
    ]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MOST_ANNOTATIONS:
        found.append("metadata.annotations: Too long: may not be more than 262144 bytes")
    found += [
        f"metadata.finalizers: Invalid value: {each!r}"
        for each in metadata.get("finalizers") or ()
        if not is_qualified(each) or (strict and "/" not in each and each not in _PLAIN_FINALIZERS)
    ]
    return found + _problems_of_owners(metadata.get("ownerReferences") or [])


def is_qualified(key: str) -> bool:
    """Whether `key` is a qualified name, as of a label."""
    if _QUALIFIED.fullmatch(key) is None:
        return False
    prefix, slash, name = key.rpartition("/")
    return len(name) <= 63 and not (slash and len(prefix) > 253)


def _problems_of_owners(owners: list[Mapping[str, Any]]) -> Problems:
    found = [
        f"metadata.ownerReferences.{name}: Invalid value: must not be empty"
        for owner in owners
        for name in ("apiVersion", "kind", "name", "uid")
        if not owner.get(name)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        found.append("metadata.ownerReferences: only one reference can have controller true")
    return found


def problems_of_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> Problems:
    """Return which changes of `metadata` are not allowed."""
    found = [
        f"metadata.{name}: Invalid value: {new.get(name)!r}: field is immutable"
        for name in _IMMUTABLE
        if new.get(name) != old.get(name)
    ]
    if old.get("deletionTimestamp"):
        added = [
            each
            for each in new.get("finalizers") or ()
            if each not in (old.get("finalizers") or ())
        ]
        if added:
            text = "no new finalizers can be added if the object is being deleted"
            found.append(f"metadata.finalizers: Forbidden: {text}, found new finalizers {added}")
    return found
