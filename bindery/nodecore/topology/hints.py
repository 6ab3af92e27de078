"""Hints: on which NUMA nodes a resource can be had, and which of these choices are preferred."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Hint:
    """One choice of NUMA nodes.

    Attributes:
        mask: the NUMA nodes as a bit mask, None for no preference.
        preferred: whether the choice uses as few nodes as the machine allows.
    """

    mask: int | None
    preferred: bool


@lru_cache(maxsize=4096)
def hint(mask: int, preferred: bool) -> Hint:
    """Return the hint for a mask; an admission needs hundreds of them, mostly the same."""
    return Hint(mask, preferred)


NO_PREFERENCE = Hint(None, preferred=True)
IMPOSSIBLE = Hint(None, preferred=False)

ResourceHints = Sequence[Hint] | None
"""None: the resource has no preference. Empty: the resource cannot be had."""

ProviderHints = Mapping[str, ResourceHints] | None
"""Resource -> its hints; None: the provider has no preference for any resource."""
