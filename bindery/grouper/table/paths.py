"""Paths of rows: JMESPath expressions over an object, with a few functions for counts.

The syntax is that of https://jmespath.org. A path is checked when a row is read: JMESPath itself
finds unknown functions only when it evaluates them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

import jmespath
from jmespath import exceptions, functions

_INDEXES: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_SIZE: Final = re.compile(r"(\d+)([kmgtp]?)b?")
_MEBIBYTES: Final = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}
_IN_BRACES: Final = re.compile(r"\{([^{}]+)\}")


class PathError(ValueError):
    """A path is not an expression, or gives something else than its row needs."""


class _Functions(functions.Functions):
    """The functions beyond JMESPath's own. Each returns null if it is given null."""

    @functions.signature({"types": ["string", "null"]})
    def _func_lower(self, text: str | None) -> str | None:
        return None if text is None else text.lower()

    @functions.signature(
        {"types": ["number", "string", "null"]}, {"types": ["number", "string", "null"]}
    )
    def _func_plus(self, first: object, second: object) -> int | None:
        return None if first is None or second is None else integer(first) + integer(second)

    @functions.signature(
        {"types": ["number", "string", "null"]}, {"types": ["number", "string", "null"]}
    )
    def _func_minus(self, first: object, second: object) -> int | None:
        return None if first is None or second is None else integer(first) - integer(second)

    @functions.signature({"types": ["number", "null"]}, {"types": ["number", "null"]})
    def _func_times(self, first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else first * second

    @functions.signature({"types": ["string", "null"]})
    def _func_mebibytes(self, text: str | None) -> int | None:
        """Return the MiB of a size as Java and Spark write it, such as `512m` or `2g`."""
        found = None if text is None else _SIZE.fullmatch(text.strip().lower())
        if found is None:
            return None
        return math.ceil(int(found[1]) * _MEBIBYTES[found[2] or "m"])

    @functions.signature({"types": ["array"]})
    def _func_least(self, numbers: list[object]) -> int | None:
        """Return the smallest number; null does not count."""
        return min((integer(each) for each in numbers if each is not None), default=None)

    @functions.signature({"types": ["string", "null"]})
    def _func_indexes(self, text: str | None) -> int:
        """Return how many indexes a Job's list such as `1,3-5` has."""
        if not text or not _INDEXES.fullmatch(text):
            return 0
        pairs = (part.partition("-") for part in text.split(","))
        return sum(int(last or first) - int(first) + 1 for first, _, last in pairs)


_OPTIONS: Final = jmespath.Options(custom_functions=_Functions())
_TABLE: Final[Mapping[str, Any]] = _Functions.FUNCTION_TABLE
OWN_FUNCTIONS: Final = frozenset(_TABLE) - frozenset(functions.Functions.FUNCTION_TABLE)
"""The names of the functions beyond JMESPath's own."""


class Path:
    """One expression."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Compile `text`.

        Raises:
            PathError: it is not JMESPath, or calls a function that does not exist.
        """
        self.text = text
        try:
            self._compiled = jmespath.compile(text)
        except exceptions.JMESPathError as error:
            raise PathError(f"{text!r} is not a path: {_first_line(error)}") from error
        for node in _nodes(self._compiled.parsed):
            if node["type"] == "function_expression":
                _demand_function(text, node["value"], len(node["children"]))
            _demand_wide_negation(text, node)

    def find(self, item: object) -> Any:
        """Return what the path leads to in `item`; None if there is nothing.

        Raises:
            PathError: a function of the path is given a value of the wrong type.
        """
        try:
            return self._compiled.search(item, _OPTIONS)
        except exceptions.JMESPathError as error:
            raise PathError(f"{self.text}: {_first_line(error)}") from error
        except (ValueError, TypeError) as error:
            raise PathError(f"{self.text}: {error}") from error

    def __repr__(self) -> str:
        return f"Path({self.text!r})"


class Text:
    """A string with paths in braces: `worker-{index}`."""

    __slots__ = ("_parts", "text")

    def __init__(self, text: str) -> None:
        """Compile the paths of `text`.

        Raises:
            PathError: one of them is no path, or a brace is not closed.
        """
        self.text = text
        if "{" in _IN_BRACES.sub("", text) or "}" in _IN_BRACES.sub("", text):
            raise PathError(f"{text!r} has a brace that is not closed")
        parts = _IN_BRACES.split(text)  # literal, path, literal, path, …
        self._parts = [_path(part) if i % 2 else part for i, part in enumerate(parts)]

    def fill(self, item: object) -> str:
        """Return the text for `item`.

        Raises:
            PathError: a path leads to nothing, or to something that is not a word or a number.
        """
        return "".join(part if isinstance(part, str) else _word(part, item) for part in self._parts)


def find(path: str, item: object) -> Any:
    """Return what `path` leads to in `item`; None if there is nothing.

    Raises:
        PathError: a function of the path is given a value of the wrong type.
    """
    return _path(path).find(item)


def entries(path: str, item: object) -> list[Any]:
    """Return the items of the list that `path` leads to in `item`; none if there is nothing.

    Raises:
        PathError: it leads to something else, or a function is given a value of the wrong type.
    """
    found = find(path, item)
    if found is None:
        return []
    if not isinstance(found, list):
        raise PathError(f"{path} is not a list")
    return found


def fill(text: str, item: object) -> str:
    """Return `text` with what its paths in braces lead to in `item`.

    Raises:
        PathError: a path leads to nothing, or to something that is not a word or a number.
    """
    return _text(text).fill(item)


def integer(value: object) -> int:
    """Return `value`, a number or its text, as an integer.

    Raises:
        PathError: it is not a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PathError(f"{value!r} is not a number")
    try:
        number = int(value)
    except (ValueError, OverflowError) as error:
        raise PathError(f"{value!r} is not a whole number") from error
    if isinstance(value, float) and number != value:
        raise PathError(f"{value!r} is not a whole number")
    return number


# Rows keep their paths as texts, so that they can be written again.
_path = lru_cache(maxsize=4096)(Path)
_text = lru_cache(maxsize=4096)(Text)


def _word(part: Path, item: object) -> str:
    value = part.find(item)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PathError(f"{part.text} leads to {value!r}, a word or a number is needed")
    return str(value)


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node["children"]:
        if isinstance(child, Mapping):
            yield from _nodes(child)


def _demand_wide_negation(text: str, node: Mapping[str, Any]) -> None:
    """Refuse `!a.b`: JMESPath reads it as `(!a).b`, which is never true."""
    children = node["children"]
    if node["type"] == "subexpression" and children[0]["type"] == "not_expression":
        raise PathError(f"{text!r}: in !a.b the negation is of a alone; write !(a.b)")


def _demand_function(text: str, name: str, count: int) -> None:
    known = _TABLE.get(name)
    if known is None:
        near = get_close_matches(name, _TABLE, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PathError(f"{text!r} calls {name}, which is not a function{hint}")
    signature = known["signature"]
    if count != len(signature) and not (signature and signature[-1].get("variadic")):
        raise PathError(f"{text!r} gives {name} {count} arguments, it takes {len(signature)}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
