"""Files that would take endless time or all memory are refused with the line of the cause."""

from pathlib import Path

import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.yamlfile import MOST_ALIASED, MOST_BYTES, FileError, load, parse, read
from bindery.scenario.files import read_scenarios

LEVELS = 9
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, LEVELS)
)
MERGE_BOMB = "a0: &a0 {k: x}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, LEVELS)
)


def only_error(path: Path, text: str) -> FileError:
    path.write_text(text)
    (error,) = read_scenarios(path)
    assert isinstance(error, FileError)
    return error


@pytest.mark.parametrize("bomb", [BOMB, MERGE_BOMB], ids=["lists", "merges"])
def test_aliases_that_expand_to_too_much_are_refused_at_their_line(bomb: str) -> None:
    with pytest.raises(FileError, match=f"more than {MOST_ALIASED:,} values") as raised:
        parse(bomb, "bomb.yaml")
    assert 5 < raised.value.line <= 2 * LEVELS


def test_a_bomb_in_a_configuration_or_a_scenario_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    assert (
        "aliases"
        in only_error(
            path, "jobs:\n" + "".join(f"  {line}\n" for line in BOMB.splitlines())
        ).message
    )
    with pytest.raises(FileError, match="aliases"):
        load(SchedulerConfiguration, path)


def test_an_alias_within_its_own_value_is_refused() -> None:
    with pytest.raises(FileError, match="refers to a value that contains it"):
        parse("a: &a [1, *a]", "loop.yaml")


def test_ordinary_aliases_are_accepted() -> None:
    (document,) = parse("pod: &pod {cpu: 1}\npods: [*pod, *pod]\nmore: {<<: *pod, gpu: 1}\n", "f")

    assert document.data == {
        "pod": {"cpu": 1},
        "pods": [{"cpu": 1}, {"cpu": 1}],
        "more": {"cpu": 1, "gpu": 1},
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("nodes: [{name: 'n{i}', count: 1000000000}]", "nodes[0].count"),
        ("nodes: [{name: n, gpus: 1000000000}]", "nodes[0].gpus"),
        ("nodes: [{name: n, devices: [{shares: 1000000000}]}]", "nodes[0].devices[0].shares"),
        ("jobs: [{name: 'j{i}', count: 1000000000, pods: [{}]}]", "jobs[0].count"),
        ("jobs: [{name: j, pods: [{count: 1000000000}]}]", "jobs[0].pods[0].count"),
        ("jobs: [{name: 'j{i}', count: 100000, pods: [{count: 100000}]}]", "jobs[0].count"),
        ("events: [{cycle: 1, job: {name: j, pods: [{count: 1000000000}]}}]", "events[0]"),
        ("rounds: 1000000000", "rounds"),
        ("settle: 1000000000", "settle"),
        ("nodes: [" + "{name: 'n{i}', count: 20000}, " * 2 + "]", "nodes[1].count"),
    ],
)
def test_a_scenario_that_is_too_large_to_run_is_refused_at_its_key(
    tmp_path: Path, text: str, place: str
) -> None:
    error = only_error(tmp_path / "large.yaml", text)

    assert error.message.startswith(place)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)

    with pytest.raises(FileError, match="larger than"):
        read(path)


def test_control_characters_of_a_file_are_escaped_in_its_errors(
    tmp_path: Path,
) -> None:
    error = only_error(
        tmp_path / "odd.yaml",
        '"\\e[2J\\u202Ekey": 1\n' + "".join(f"{'k' * 100}{n}: 1\n" for n in range(300)),
    )

    assert "\\x1b[2J\\u202ekey" in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 5_000
