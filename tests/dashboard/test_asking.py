"""When a question is asked again, and when its answer is still good."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from bindery.answers.errors import NoAnswerError
from bindery.dashboard.asking import PlanDesk
from bindery.dashboard.state import PLAN_EVERY_S, ClusterReader, StateKeeper
from bindery.scheduler.model.jobs import JobKey

KEY = JobKey("team", "gang", True)


@dataclass
class Picture:
    version: int = 1


@dataclass
class Cluster:
    """A fake of keeper, reader and engine, made for tests: the clock and the pictures are given."""

    now_s: float = 1000.0
    took_s: float = 0.0
    newest: Picture = field(default_factory=Picture)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    plans: int = 0
    fails: bool = False

    async def picture(self) -> Picture:
        return self.newest

    @property
    def kept(self) -> "Cluster":
        return self

    async def source(self) -> None:
        return None

    @contextmanager
    def lent(self) -> Iterator[None]:
        yield

    def explanation(self, *_: Any) -> None:
        self.plans += 1
        if self.fails:
            raise NoAnswerError("no plan")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def desk(cluster: Cluster) -> PlanDesk:
    return PlanDesk(cast("StateKeeper", cluster), cast("ClusterReader", cluster))


async def ask(desk: PlanDesk) -> None:
    question = await desk.explanation(KEY)
    assert await question.is_answered_within(None)


async def test_an_answer_is_good_for_its_picture_and_for_a_while(
    cluster: Cluster, desk: PlanDesk
) -> None:
    await ask(desk)
    cluster.now_s += 100 * PLAN_EVERY_S
    await ask(desk)
    assert cluster.plans == 1

    cluster.newest = Picture(2)
    await ask(desk)
    assert cluster.plans == 2
    cluster.newest = Picture(3)
    cluster.now_s += PLAN_EVERY_S
    await ask(desk)
    assert cluster.plans == 2


async def test_an_answer_that_took_long_is_good_when_it_comes(
    cluster: Cluster, desk: PlanDesk
) -> None:
    async with cluster.turn:  # another question is planned
        question = await desk.explanation(KEY)
        cluster.now_s += 100 * PLAN_EVERY_S
        assert question.age_s == 100 * PLAN_EVERY_S
        cluster.newest = Picture(2)
        assert await desk.explanation(KEY) is question
    await question.is_answered_within(None)

    assert question.age_s == 0.0
    assert await desk.explanation(KEY) is question


async def test_a_question_without_an_answer_is_asked_again(
    cluster: Cluster, desk: PlanDesk
) -> None:
    cluster.fails = True
    question = await desk.explanation(KEY)
    await question.is_answered_within(None)
    with pytest.raises(NoAnswerError, match="no plan"):
        question.answer()

    cluster.fails = False
    await ask(desk)

    assert cluster.plans == 2
