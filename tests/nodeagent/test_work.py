import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from bindery.kube.errors import UnreachableError
from bindery.nodeagent.work import WorkQueue

Handle = Callable[[str], Awaitable[float | None]]


@asynccontextmanager
async def running(handle: Handle, workers: int = 4) -> AsyncIterator[WorkQueue[str]]:
    queue = WorkQueue("test", handle, workers=workers, random=Random(1))
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(60):
            yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Recorder:
    """Handles keys and lets tests wait for the number of times that it was asked."""

    def __init__(self, answer: Callable[[str, int], float | None] = lambda _key, _count: None):
        self.handled: list[str] = []
        self._answer = answer
        self._changed = asyncio.Event()

    async def __call__(self, key: str) -> float | None:
        self.handled.append(key)
        self._changed.set()
        return self._answer(key, self.handled.count(key))

    async def count(self, number: int) -> list[str]:
        while len(self.handled) < number:
            self._changed.clear()
            await self._changed.wait()
        return self.handled


async def test_a_key_added_several_times_before_its_turn_is_handled_once() -> None:
    recorder = Recorder()
    async with running(recorder) as queue:
        for _ in range(5):
            queue.add("a")
        queue.add("end")

        assert await recorder.count(2) == ["a", "end"]


async def test_a_key_added_while_it_is_handled_is_handled_again() -> None:
    entered, proceed, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    at_once, most_at_once, count = 0, 0, 0

    async def handle(_key: str) -> None:
        nonlocal at_once, most_at_once, count
        at_once, count = at_once + 1, count + 1
        most_at_once = max(most_at_once, at_once)
        entered.set()
        await proceed.wait()
        at_once -= 1
        if count == 2:
            done.set()

    async with running(handle) as queue:
        queue.add("a")
        await entered.wait()
        queue.add("a")
        queue.add("a")
        proceed.set()
        await done.wait()

    assert (most_at_once, count) == (1, 2)


async def test_a_key_is_handled_again_after_the_delay_that_its_handler_returns() -> None:
    recorder = Recorder(lambda _key, count: 0.05 if count == 1 else None)
    async with running(recorder) as queue:
        before = asyncio.get_running_loop().time()
        queue.add("a")
        await recorder.count(2)

        assert asyncio.get_running_loop().time() - before >= 0.05


async def test_a_later_deadline_replaces_an_earlier_one() -> None:
    recorder = Recorder()
    async with running(recorder) as queue:
        queue.add_later("a", 0.01)
        queue.add_later("a", 0.1)
        queue.add_later("b", 0.05)

        assert await recorder.count(2) == ["b", "a"]


async def test_a_removed_deadline_never_fires() -> None:
    recorder = Recorder()
    async with running(recorder) as queue:
        queue.add_later("a", 0.01)
        queue.add_later("b", 0.05)
        queue.forget("a")

        assert await recorder.count(1) == ["b"]


async def test_a_key_with_a_failed_call_is_retried_while_others_continue() -> None:
    def answer(key: str, count: int) -> None:
        if key == "a" and count < 3:
            raise UnreachableError("refused")

    recorder = Recorder(answer)
    async with running(recorder, workers=1) as queue:
        queue.add("a")
        queue.add("b")

        assert await recorder.count(4) == ["a", "b", "a", "a"]


async def test_a_programming_error_ends_the_queue() -> None:
    def answer(_key: str, _count: int) -> None:
        raise ZeroDivisionError

    queue = WorkQueue("test", Recorder(answer), workers=2, random=Random(1))
    queue.add("a")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(60):
            await queue.run()
    assert caught.group_contains(ZeroDivisionError)


async def test_moved_deadlines_do_not_accumulate() -> None:
    recorder = Recorder()
    async with running(recorder) as queue:
        for _ in range(20_000):
            queue.add_later("a", 60)

        assert len(queue._heap) < 2000
