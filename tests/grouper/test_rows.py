"""Rows of users: errors are reported with file and line, and valid rows are used."""

from pathlib import Path

import pytest

from bindery.api.yamlfile import FileError
from bindery.grouper.table import PodFacts, Reference, load, plan
from bindery.grouper.table.paths import Path as RowPath
from bindery.grouper.table.paths import PathError, Text

HEAD = """apiVersion: scheduling.bindery.dev/v1alpha1
kind: GrouperTable
rows:
"""


def written(folder: Path, rows: str, name: str = "rows.yaml") -> Path:
    path = folder / name
    path.write_text(HEAD + rows)
    return path


@pytest.mark.parametrize(
    ("rows", "line", "message"),
    [
        (
            "- match: {group: a.b, kind: K}\n  mim: spec.n\n",
            5,
            "rows[0].mim: unknown key; did you mean min?",
        ),
        (
            "- match: {group: a.b, kind: K}\n  min: spec..n\n",
            5,
            "rows[0].min[0]: 'spec..n' is not a path",
        ),
        ("- match: {group: a.b, kind: K}\n  min: summ(spec.n)\n", 5, "did you mean sum?"),
        ("- match: {group: a.b, kind: K}\n  min: sum(a, b)\n", 5, "it takes 1"),
        (
            "- match: {group: a.b, kind: K}\n  roles:\n  - {name: w, skip: '!a.b'}\n",
            6,
            "write !(a.b)",
        ),
        (
            "- match: {group: a.b, kind: K}\n  roles:\n  - {name: 'w-{x'}\n",
            6,
            "a brace that is not closed",
        ),
        (
            "- match: {group: a.b, kind: K}\n  min: 1\n- match: {group: a.b, kind: K}\n  min: 2\n",
            6,
            "a second row for K.a.b, the first is at",
        ),
        (
            "- match: {group: a.b, kind: K}\n  pass: {owner: true, pod: true}\n",
            5,
            "exactly one of owner, kind, pod and object",
        ),
        ("- match: {group: a.b, kind: K}\n  rank: my/index\n", 5, "the scheduler reads no rank"),
        ("- match: {group: a.b, kind: K}\n  class: servers\n", 5, "'inference'"),
        (
            "- match: {group: a.b, kind: K}\n  roles:\n  - {name: w, after: [{condition: Done}]}\n",
            6,
            "'Done' is not a valid StageCondition",
        ),
        ("- match: {kind: K}\n", 4, "rows[0].match.group: this key is required"),
    ],
)
def test_an_invalid_row_is_an_error_with_file_and_line(
    tmp_path: Path, rows: str, line: int, message: str
) -> None:
    path = written(tmp_path, rows)

    with pytest.raises(FileError) as raised:
        load([path])

    assert (raised.value.file, raised.value.line) == (str(path), line)
    assert message in raised.value.message


def test_rows_for_one_kind_in_two_files_are_refused(tmp_path: Path) -> None:
    row = "- match: {group: a.b, kind: K, versions: [v1, v2]}\n  min: 2\n"
    files = [written(tmp_path, row, "a.yaml"), written(tmp_path, row, "b.yaml")]

    with pytest.raises(FileError, match=r"b\.yaml:4.*the first is at .*a\.yaml:4"):
        load(files)


def test_a_row_of_a_user_replaces_the_shipped_row(tmp_path: Path) -> None:
    table = load([written(tmp_path, "- match: {group: batch, kind: Job}\n  min: 7\n")])

    row = table.row("batch", "v1", "Job")
    assert row is not None
    assert row.min == ("`7`",)
    assert table.row("apps", "v1", "Deployment") is not None


def test_a_row_for_a_version_precedes_a_row_for_all_versions(tmp_path: Path) -> None:
    rows = (
        "- match: {group: a.b, kind: K}\n  min: 1\n"
        "- match: {group: a.b, kind: K, versions: v2}\n  min: 2\n"
    )
    table = load([written(tmp_path, rows)])

    found = [table.row("a.b", version, "K") for version in ("v1", "v2")]
    assert [row and row.min for row in found] == [("`1`",), ("`2`",)]


def test_a_row_of_a_user_is_interpreted(tmp_path: Path) -> None:
    rows = """- match: {group: example.com, kind: Ring}
  roles:
  - each: spec.rings
    name: "{_key}"
    skip: spare
    count: nodes
    min: [atLeast, nodes]
    times: perNode
    pods: {example.com/ring: "{_key}"}
    after: [{role: outer, condition: Bound, when: _key == 'inner'}]
"""
    ring = {
        "apiVersion": "example.com/v1",
        "kind": "Ring",
        "metadata": {"name": "r", "uid": "ring-uid-1", "namespace": "default"},
        "spec": {
            "rings": {
                "outer": {"nodes": 3, "atLeast": 2, "perNode": 2},
                "inner": {"nodes": 1, "perNode": 1},
                "spare": {"nodes": 1, "perNode": 1, "spare": True},
            }
        },
    }
    controller = Reference("example.com/v1", "Ring", "r", "ring-uid-1", "default")
    pods = [PodFacts("p", "p", "default", {}, {}, controller)]

    (group,) = plan({"ring-uid-1": ring}, pods, load([written(tmp_path, rows)])).groups

    found = {part.name: (part.min_member, part.pod_labels) for part in group.spec.sub_groups}
    assert found == {
        "inner": (1, {"example.com/ring": "inner"}),
        "outer": (4, {"example.com/ring": "outer"}),
    }
    (stage,) = group.spec.sub_groups[0].after
    assert (stage.sub_group, stage.condition) == ("outer", "Bound")


@pytest.mark.parametrize(
    ("path", "item", "value"),
    [
        ("least([a, b])", {"a": 3}, 3),
        ("least([a, b])", {}, None),
        ("plus(a, b)", {"a": 3, "b": "4"}, 7),
        ("minus(a, b)", {"a": 3}, None),
        ("indexes(a)", {"a": "1,3-5,9"}, 5),
        ("indexes(a)", {"a": "nonsense"}, 0),
        ("indexes(a)", {}, 0),
        ("lower(a)", {"a": "Worker"}, "worker"),
        ("times(a, `2`)", {"a": 1.5}, 3.0),
        ("times(a, b)", {"a": 2}, None),
        ("mebibytes(a)", {"a": "2g"}, 2048),
        ("mebibytes(a)", {"a": "512"}, 512),
        ("mebibytes(a)", {"a": "1025KB"}, 2),
        ("mebibytes(a)", {"a": "much"}, None),
        ("mebibytes(a)", {}, None),
        ("sum(a.*.n)", {"a": {"x": {"n": 1}, "y": {"n": 2}, "z": {}}}, 3),
    ],
)
def test_paths_and_their_functions_find_values(path: str, item: object, value: object) -> None:
    assert RowPath(path).find(item) == value


@pytest.mark.parametrize("path", ["sum(a)", "plus(a, a)", "lower(a)"])
def test_a_value_of_the_wrong_type_is_named_with_its_path(path: str) -> None:
    with pytest.raises(PathError, match=path.partition("(")[0]):
        RowPath(path).find({"a": {"b": 1}})


def test_a_text_is_filled_only_with_words_and_numbers() -> None:
    assert Text("w-{a.b}-{c}").fill({"a": {"b": "x"}, "c": 3}) == "w-x-3"
    with pytest.raises(PathError, match="a word or a number is needed"):
        Text("{a}").fill({})
