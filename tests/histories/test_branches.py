"""The table of branches shows what ran, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bindery.kube.http.retry import RetryPolicy
from tests.histories import branches
from tests.histories.branches import AREAS, ROOT, Recorder, all_ways, not_taken, table

MODULE = "sample.py"
SAMPLE = """\
def chosen(number):
    if number > 3:
        return "large"
    for each in range(number):
        assert each >= 0
    return "small"


async def awaited(numbers):
    async with Lock():
        return [each for each in numbers if each > 1]
"""


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions of a module of which the branches are known."""
    path = tmp_path / MODULE
    path.write_text(SAMPLE)
    monkeypatch.setattr(branches, "ROOT", tmp_path)
    functions: dict[str, Any] = {"Lock": asyncio.Lock}
    exec(compile(SAMPLE, str(path), "exec"), functions)
    return functions


def ways(recorder: Recorder) -> set[tuple[int, int]]:
    return {(line, to) for _, line, to in recorder.taken}


def test_each_way_of_a_branch_is_recorded_when_it_is_taken(sample: dict[str, Any]) -> None:
    recorder = Recorder([MODULE])

    with recorder.recording():
        sample["chosen"](9)
    assert ways(recorder) == {(2, 3)}

    with recorder.recording():
        sample["chosen"](2)
    assert ways(recorder) == {(2, 3), (2, 4), (4, 4), (4, 6)}


def test_assertions_and_with_blocks_are_no_branches(sample: dict[str, Any]) -> None:
    recorder = Recorder([MODULE])

    with recorder.recording():
        sample["chosen"](9)
        sample["chosen"](2)
        asyncio.run(sample["awaited"]([1, 2]))

    assert recorder.taken == all_ways(MODULE)


def test_what_runs_outside_is_not_recorded(sample: dict[str, Any]) -> None:
    recorder = Recorder([MODULE])

    sample["chosen"](9)
    with recorder.recording():
        RetryPolicy()

    assert not recorder.taken


def test_the_table_has_every_area_and_all_modules_exist() -> None:
    [one, *others] = sorted(all_ways("bindery/kube/http/retry.py"))

    text = table({one})

    assert all(area in text for area in AREAS)
    assert all((ROOT / module).is_file() for modules in AREAS.values() for module in modules)
    assert f"{one[0]}:{others[0][1]} -> {others[0][2]}" in not_taken({one})
    assert f"{one[0]}:{one[1]} -> {one[2]}" not in not_taken({one})
