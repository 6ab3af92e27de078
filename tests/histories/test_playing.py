"""`make histories`: many seeds on all cores, with progress, and no failure that is overlooked."""

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.histories import playing
from tests.histories.__main__ import main
from tests.histories.playing import Result, Total, result_of


def result(seed: int, problem: str = "") -> Result:
    return Result(seed, problem, 60.0, 100, Counter({"kill": 1}), frozenset())


def test_seeds_are_played_by_several_processes() -> None:
    arguments = ["--first=1", "--seeds=3", "--jobs=2"]
    played = subprocess.run(
        [sys.executable, "-m", "tests.histories", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "3 histories passed, 0 failed: 0.1 hours of virtual time" in played.stdout


def test_progress_has_the_rate_and_the_time_left() -> None:
    total = Total(of=10, begin_s=100.0)
    for seed in range(4):
        total.add(result(seed, "a pod is on two nodes" if seed == 2 else ""))

    assert total.progress(102.0) == "4 of 10 played, 1 failed: 2.0 a second, 3 s left"
    assert total.failed == [2]
    assert total.faults == {"kill": 4}


def test_an_error_of_the_histories_themselves_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stall(_plan: Any) -> Any:
        raise RuntimeError("nothing is due")

    monkeypatch.setattr(playing, "play", stall)

    assert result_of(1).problem == "RuntimeError: nothing is due"
    assert main(["--seeds=1", "--jobs=1"]) == 1
    assert "seed 0: RuntimeError: nothing is due" in capsys.readouterr().out


def test_branches_are_recorded_on_request() -> None:
    assert not result_of(1).ways
    assert len(result_of(1, records=True).ways) > 100
