"""Histories keep every promise, are the same everywhere, and find what is broken on purpose."""

import asyncio
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from bindery.binder.outcome.retention import RetentionQueue
from tests.histories.components import MAINS
from tests.histories.drawing import draw
from tests.histories.history import play
from tests.histories.planted import PLANTED, SOON_S, Planted, finding
from tests.histories.shrinking import shrunk
from tests.histories.story import story
from tests.sizes import HISTORIES, sample

BLOCK = 20
AGAIN = 4
"""Seeds that are played a second time, in a process with another hash seed."""
WITHIN = 100
"""Histories within which each defect is found, from the first on that is known to find it."""
PRINTED = "from tests.histories.history import play; from tests.histories.drawing import draw; "
PRINTED += f"[print(play(draw(seed)).digest) for seed in range({AGAIN})]"


@cache
def digest_of(seed: int) -> str:
    """Play a seed once, fail with its story if it breaks a promise, and return its digest."""
    played = play(draw(seed))
    assert not played.problem, story(shrunk(played))
    return played.digest


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + BLOCK):
        digest_of(seed)


def test_one_seed_is_one_history_in_every_process() -> None:
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    other = subprocess.run(
        [sys.executable, "-c", PRINTED],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert other == [digest_of(seed) for seed in range(AGAIN)]
    assert len(set(other)) == AGAIN


def test_another_seed_is_another_history() -> None:
    assert play(draw(0)).digest != play(draw(1)).digest


def test_a_history_that_fails_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = draw(0)
    monkeypatch.setattr(RetentionQueue, "run", _rest)

    small = shrunk(play(plan, SOON_S), SOON_S)

    assert small.problem
    assert small.plan.parts() < plan.parts()
    assert all(
        not play(small.plan.without(part), SOON_S).problem for part in range(small.plan.parts())
    )
    assert small.problem in story(small)


async def _rest(*_arguments: Any) -> None:
    """Do nothing."""


async def _spin(*_arguments: Any) -> None:
    await asyncio.sleep(1.0)
    asyncio.get_running_loop().call_soon(_turn)
    await asyncio.Event().wait()


def _turn() -> None:
    asyncio.get_running_loop().call_soon(_turn)


def test_a_process_that_lets_no_time_pass_fails_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MAINS, "grouper", _spin)

    assert play(draw(0)).problem.endswith("s, grouper spins")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("defect", sample(12, PLANTED), ids=lambda each: each.name)
def test_what_is_broken_on_purpose_is_found(defect: Planted) -> None:
    found = finding(defect, range(defect.first, defect.first + WITHIN))

    assert found is not None
