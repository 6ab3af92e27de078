"""Reads objects of a YAML file that are JSON on one line each, fifty times as fast.

Used by `yamlfile`. JSON is YAML, so the lines have the same meaning for every other reader.
Invariant: the result equals that of PyYAML; in doubt, a line is left to PyYAML.
"""

import json
from typing import Final

import yaml

_KEY: Final = "objects"
_ITEM: Final = "- {"
_PLACEHOLDER: Final = "- {}"


class RepeatedKeyError(ValueError):
    """A key occurs twice in one JSON object. `line` is 0-based."""

    def __init__(self, line: int, key: str) -> None:
        super().__init__(f"{key}: stands twice")
        self.line = line


class TakenOut:
    """The text of a file without the objects below its keys `objects`; they stand in `left`."""

    def __init__(self, text: str) -> None:
        """Take the objects out of `text`.

        Raises:
            RepeatedKeyError: a key stands twice in one of them.
        """
        self.left: dict[int, object] = {}
        """0-based line -> the object on it that has not been put back."""
        if f"{_KEY}:\n" not in text:
            self.text = text
            return
        lines = text.split("\n")
        is_below = False
        for number, line in enumerate(lines):
            if is_below and line.startswith(_ITEM):
                self._take(number, lines)
            elif line[:1] not in {" ", "-", "#", ""} or line.startswith("---"):
                is_below = line.rstrip() == f"{_KEY}:"
        self.text = "\n".join(lines)

    def _take(self, number: int, lines: list[str]) -> None:
        try:
            found = json.loads(
                lines[number][2:], object_pairs_hook=_unique, parse_constant=_refused
            )
        except _RepeatedError as error:
            raise RepeatedKeyError(number, str(error)) from None
        except (ValueError, RecursionError):
            return
        self.left[number] = found
        lines[number] = _PLACEHOLDER

    def put_back(self, root: yaml.Node, data: object) -> None:
        """Put the objects of the document `data`, of the node `root`, into their places."""
        if not self.left or not isinstance(root, yaml.MappingNode) or not isinstance(data, dict):
            return
        items = data.get(_KEY)
        for key, value in root.value:
            if key.value == _KEY and isinstance(value, yaml.SequenceNode):
                assert isinstance(items, list), "it was made of this node"
                for index, item in enumerate(value.value):
                    line = item.start_mark.line
                    if line in self.left:
                        items[index] = self.left.pop(line)


class _RepeatedError(Exception):
    """A key stands twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedError(next(key for key in keys if keys.count(key) > 1))
    return found


def _refused(word: str) -> object:
    """Leave NaN and infinities, which are no JSON, to YAML."""
    raise ValueError(word)
