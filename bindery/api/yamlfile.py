"""Reads YAML files of users, and reports every mistake with file, line and key.

Used for configuration and scenarios. PyYAML's node graph has the lines, pydantic finds the
mistakes, and this module combines both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bindery.api.jsonlines import RepeatedKeyError, TakenOut
from bindery.api.shown import shown

MOST_BYTES = 64 * 2**20
"""The largest file. A snapshot of 1,000 nodes and 10,000 pods takes a third of it."""
MOST_ALIASED = 1_000_000
"""Maximum number of values that aliases may add."""
_MOST_MESSAGE = 4096

Model = TypeVar("Model", bound=BaseModel)
_EXPECTED: Final = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "an object"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a text",
}
"""Type of a problem in pydantic -> the value that the file should contain."""
Location = tuple[str | int, ...]


class FileError(Exception):
    """A file cannot be used. The caller shows the text and exits with code 2."""

    def __init__(self, file: str, line: int, message: str) -> None:
        self.file, self.line, self.message = file, line, shown(message, _MOST_MESSAGE)
        super().__init__(f"{file}:{line}: {self.message}")


@dataclass(frozen=True)
class Document:
    """One YAML document with the place of every key."""

    file: str
    data: object
    root: yaml.Node

    def line(self, location: Location) -> int:
        """Return the 1-based line of the deepest part of `location` that the document has."""
        node, line = self.root, self.root.start_mark.line + 1
        for part in location:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line

    def error(self, location: Location, message: str) -> FileError:
        """Return an error at `location`."""
        return FileError(self.file, self.line(location), _at(location, message))


def parse(text: str, file: str) -> list[Document]:
    """Return the documents of `text`, empty ones left out.

    Objects that stand on a line each as JSON below a key `objects` are read fast.

    Raises:
        FileError: `text` is not YAML.
    """
    try:
        taken = TakenOut(text)
    except RepeatedKeyError as error:
        raise FileError(file, error.line + 1, str(error)) from error
    documents = _documents(taken.text, file)
    for document in documents:
        taken.put_back(document.root, document.data)
    # A line that only looks like an object, such as one within a text, is left to YAML.
    return _documents(text, file) if taken.left else documents


def _documents(text: str, file: str) -> list[Document]:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FileError(file, line, f"not YAML: {error.reason}") from error
    documents: list[Document] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _check(node, file)
            data = loader.construct_document(node)
            if node is not None and data is not None:
                documents.append(Document(file, data, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise FileError(file, line, f"not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileError(file, 1, f"not YAML: {error}") from error
    finally:
        loader.dispose()
    return documents


def read(path: Path) -> list[Document]:
    """Return the documents of the file at `path`.

    Raises:
        FileError: the file cannot be read or is not YAML.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileError(str(path), 1, f"it is larger than {MOST_BYTES // 2**20} MiB")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(str(path), 1, f"cannot be read: {error}") from error
    return parse(text, str(path))


def validate(model: type[Model], document: Document) -> Model:
    """Return `document` as a `model`.

    Raises:
        FileError: at the line of the first wrong key; the text names all wrong keys.
    """
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        problems = sorted(
            ((document.line(item["loc"]), item["loc"], describe(item)) for item in error.errors()),
            key=lambda problem: problem[0],
        )
        texts = [_at(location, message) for _, location, message in problems]
        raise FileError(document.file, problems[0][0], "; ".join(texts)) from error


def _at(location: Sequence[str | int], message: str) -> str:
    return f"{format_location(location)}: {message}" if location else message


def describe(problem: ErrorDetails) -> str:
    """Return the message of `problem` in terms of the file, not of pydantic."""
    if problem["type"] == "extra_forbidden":
        return "unknown key"
    if problem["type"] == "missing":
        return "this key is required"
    expected = _EXPECTED.get(problem["type"])
    if expected is not None:
        return f"{expected} is expected"
    return problem["msg"].removeprefix("Value error, ")


def load(model: type[Model], path: Path) -> Model:
    """Return the single document of the file at `path` as a `model`.

    Raises:
        FileError: the file cannot be read, is not one YAML document, or does not fit the model.
    """
    documents = read(path)
    if len(documents) != 1:
        raise FileError(str(path), 1, f"one document is expected, {len(documents)} found")
    return validate(model, documents[0])


def format_location(location: Sequence[str | int]) -> str:
    """Return `location` in a readable form: `jobs[2].pods[0].cpu`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _bottom_up(root: yaml.Node, file: str) -> list[yaml.Node]:
    """Return `root` and the nodes below it, each once, after its own children.

    Raises:
        FileError: a node contains itself, by an alias.
    """
    found: list[yaml.Node] = []
    is_done: dict[int, bool] = {}
    stack = [(root, False)]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            is_done[id(node)] = True
            found.append(node)
            continue
        if id(node) in is_done:
            if not is_done[id(node)]:
                line = node.start_mark.line + 1
                raise FileError(file, line, "an alias refers to a value that contains it")
            continue
        is_done[id(node)] = False
        stack.append((node, True))
        stack.extend((child, False) for child in _children(node))
    return found


def _check(root: yaml.Node, file: str) -> None:
    """Refuse duplicate keys, and aliases that would take too long to expand.

    Raises:
        FileError: a key occurs twice, or aliases expand to too many values.
    """
    nodes = _bottom_up(root, file)
    sizes: dict[int, int] = {}
    for node in nodes:
        _demand_unique_keys(node, file)
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
        if sizes[id(node)] > len(nodes) + MOST_ALIASED:
            line = node.start_mark.line + 1
            raise FileError(file, line, f"aliases expand to more than {MOST_ALIASED:,} values")


def _demand_unique_keys(node: yaml.Node, file: str) -> None:
    """Refuse a mapping with a duplicate key: PyYAML would silently use the last value.

    Raises:
        FileError: at the line of the second occurrence.
    """
    if isinstance(node, yaml.MappingNode):
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.value != "<<":
                    raise FileError(file, key.start_mark.line + 1, f"{key.value}: stands twice")
                seen.add(key.value)


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """Return the line and the value below `node` at `part`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if str(key.value) == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child = node.value[part]
        return child.start_mark.line + 1, child
    return None
