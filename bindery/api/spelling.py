"""Finds the known name of a plugin, an action or a pod's key that a misspelt name may stand for.

Only letters and digits are compared, ignoring case: GPU-sharing stands for gpusharing. Pure.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

FORMER_NAMES: Final[Mapping[str, str]] = {"nodelock": "hami"}
"""A plugin's former name, by letters and digits alone -> its name."""
_SIMILAR: Final = 0.6
"""Default ratio of `difflib.SequenceMatcher` from which a name counts as misspelt."""


def meant(name: str, known: Collection[str], similar: float = _SIMILAR) -> str | None:
    """Return the name in `known` that `name` may stand for; None if none is similar enough.

    Args:
        name: the misspelt name.
        known: the names that exist.
        similar: ratio of `difflib.SequenceMatcher` from which two names are similar.
    """
    plain = _plain(name)
    if FORMER_NAMES.get(plain) in known:
        return FORMER_NAMES[plain]
    by_plain = {_plain(each): each for each in sorted(known)}
    close = get_close_matches(plain, by_plain, n=1, cutoff=similar)
    return by_plain[close[0]] if close else None


def no_such(kind: str, name: str, known: Collection[str]) -> str:
    """Return the error for `name`, which is not in `known`; `kind`: "plugin" or "action"."""
    near = meant(name, known)
    there = ", ".join(sorted(known)) or "none"
    return f"there is no {kind} {name}; {f'did you mean {near}?' if near else f'known: {there}'}"


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
