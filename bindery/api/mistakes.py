"""Finds annotations and labels of a pod with Bindery's prefix that no component reads.

With a misspelt key, or an annotation where a label belongs, a pod would lose its gang or its
queue's limit. Used by the admission webhook, which refuses such pods, and by the scheduler, which
writes warnings. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bindery.api.names import GROUP
from bindery.api.podkeys import OWNER_ANNOTATIONS, OWNER_LABELS, known_annotations, known_labels
from bindery.api.spelling import meant

_DOMAIN: Final = GROUP.partition(".")[2]
_KNOWN: Final = {"annotation": known_annotations(), "label": known_labels()}
_OWNERS: Final = {"annotation": OWNER_ANNOTATIONS, "label": OWNER_LABELS}
_OTHER: Final = {"annotation": "label", "label": "annotation"}
_ARTICLES: Final = {"annotation": "an annotation", "label": "a label"}
_SIMILAR: Final = 0.75
"""Ratio of `difflib.SequenceMatcher` from which a name counts as misspelt."""
_MOST_SHOWN: Final = 80


def mistaken_keys(annotations: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    """Return the problems of the keys of a pod, one sentence each, in the order of the keys."""
    found = (*_mistakes("annotation", annotations), *_mistakes("label", labels))
    return [text for _, text in sorted(found)]


def mistaken_keys_of_owner(annotations: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    """Return the problems of the keys of an object that creates pods, one sentence each.

    The grouper reads both annotations and labels of owners.
    """
    found: list[tuple[str, str]] = []
    for kind, keys in (("annotation", annotations), ("label", labels)):
        rest = {key: value for key, value in keys.items() if key not in _KNOWN[_OTHER[kind]]}
        found += _mistakes(kind, rest)
    return [text for _, text in sorted(found)]


def _mistakes(kind: str, keys: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key in keys:
        if key in _KNOWN[kind] or _DOMAIN not in key:
            continue
        domain, _, name = key.partition("/")
        if domain != GROUP and not (domain.endswith(_DOMAIN) and _meant(kind, name, 1.0)):
            continue
        yield key, f"{kind} {key[:_MOST_SHOWN]} has no effect{_advice(kind, key, name)}"


def _advice(kind: str, key: str, name: str) -> str:
    other = _OTHER[kind]
    if key in _KNOWN[other]:
        return f": it must be {_ARTICLES[other]}"
    found = _meant(kind, name, _SIMILAR)
    if found is None:
        return ": it is not known"
    return f": did you mean the {found[0]} {found[1]}?"


def _meant(kind: str, name: str, similar: float) -> tuple[str, str] | None:
    """Return kind and key of the known name that `name` resembles by at least `similar`."""
    for each in (kind, _OTHER[kind]):
        by_name = {key.rpartition("/")[2]: key for key in sorted(_OWNERS[each])}
        close = meant(name, by_name, similar)
        if close is not None:
            return each, by_name[close]
    return None
