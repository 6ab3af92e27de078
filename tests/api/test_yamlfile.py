"""YAML files of users: every mistake is reported with its file, line and key."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from bindery.api.yamlfile import FileError, format_location, load, parse, read, validate


class Shelf(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    places: int = Field(default=1, ge=1)


class Room(BaseModel):
    model_config = ConfigDict(extra="forbid")

    shelves: list[Shelf] = []
    doors: dict[str, int] = {}


def error_of(text: str) -> FileError:
    def check() -> None:
        for document in parse(text, "room.yaml"):
            validate(Room, document)

    with pytest.raises(FileError) as caught:
        check()
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("shelf: []\n", 1, "shelf: unknown key"),
        (
            "# a comment\n\nshelves:\n- name: a\n- name: b\n  places: 0\n",
            6,
            "shelves[1].places: Input should be greater than or equal to 1",
        ),
        ("shelves:\n- name: a\n- places: 2\n", 3, "shelves[1].name: this key is required"),
        ("doors:\n  north: 1\n  south: wide\n", 3, "doors.south: a whole number is expected"),
        ("shelves: {name: a}\n", 1, "shelves: a list is expected"),
        ("- name: a\n", 1, "an object is expected"),
        ("doors: {}\n---\nshelf: []\n", 3, "shelf: unknown key"),
        ("doors:\n  north: 1\n  north: 2\n", 3, "north: stands twice"),
        ("doors: [\n", 2, "not YAML: "),
        ("doors:\n\t- a\n", 2, "not YAML: "),
        ("doors: !!python/object:os.system {}\n", 1, "not YAML: could not determine a constructor"),
        ("shelves: *none\n", 1, "not YAML: found undefined alias"),
    ],
)
def test_a_mistake_is_reported_at_its_line_with_its_key(text: str, line: int, message: str) -> None:
    error = error_of(text)

    assert (error.file, error.line) == ("room.yaml", line)
    assert error.message.startswith(message)
    assert str(error) == f"room.yaml:{line}: {error.message}"


def test_all_mistakes_are_reported_in_order_of_their_lines() -> None:
    error = error_of("doors: {a: b}\nshelves:\n- {}\nroof: 1\n")

    assert error.line == 1
    keys = [part.partition(":")[0] for part in error.message.split("; ")]
    assert keys == ["doors.a", "shelves[0].name", "roof"]


def test_documents_are_separated_and_empty_ones_are_skipped() -> None:
    documents = parse("---\n---\ndoors: {a: 1}\n---\n# nothing\n---\ndoors: {b: 2}\n", "f")

    assert [document.data for document in documents] == [{"doors": {"a": 1}}, {"doors": {"b": 2}}]


@pytest.mark.parametrize(("text", "count"), [("", 0), ("doors: {}\n---\ndoors: {}\n", 2)])
def test_a_file_without_exactly_one_document_is_an_error(
    tmp_path: Path, text: str, count: int
) -> None:
    path = tmp_path / "room.yaml"
    path.write_text(text)

    with pytest.raises(FileError, match=f"one document is expected, {count} found"):
        load(Room, path)


def test_a_valid_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "room.yaml"
    path.write_text("shelves: [{name: a, places: 2}]\n")

    assert load(Room, path) == Room(shelves=[Shelf(name="a", places=2)])


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_file_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "room.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(FileError, match="cannot be read"):
        read(path)


def test_a_character_that_yaml_forbids_is_an_error_at_its_line() -> None:
    with pytest.raises(FileError, match=r"room\.yaml:2: not YAML: special characters"):
        parse("shelves:\n- name: \x00\n", "room.yaml")


def test_a_location_is_written_as_a_dotted_path() -> None:
    assert format_location(("jobs", 2, "pods", 0, "cpu")) == "jobs[2].pods[0].cpu"
    assert format_location(()) == ""
