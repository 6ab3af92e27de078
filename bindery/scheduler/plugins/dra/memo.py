"""Results that are computed once, errors included."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=Exception)


def remembered(cache: dict[K, V | E], key: K, error_type: type[E], compute: Callable[[], V]) -> V:
    """Return the value of `key`; on the first call, compute it and keep the value or the error.

    Raises:
        Exception: one of `error_type`; `compute` raised it, now or earlier.
    """
    found = cache.get(key)
    if found is None:
        try:
            found = compute()
        except error_type as error:
            found = error
        cache[key] = found
    if isinstance(found, Exception):
        # Each raise adds frames to the traceback, and frames keep their variables alive.
        raise found.with_traceback(None)
    return found
