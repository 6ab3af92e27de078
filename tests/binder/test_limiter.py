"""The order of waiting bindings when the number in flight is limited."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bindery.binder.outcome.limiter import FairLimiter

Claim = tuple[str, int]
"""Namespace and priority."""


async def order_of(claims: Sequence[Claim]) -> list[Claim]:
    """Return in which order `claims`, made in their order while the one place was taken, get it."""
    limiter, order = FairLimiter(1), list[Claim]()

    async def claim(namespace: str, priority: int) -> None:
        async with limiter.taken(namespace, priority):
            order.append((namespace, priority))

    async with asyncio.TaskGroup() as group, limiter.taken("before", 0):
        for namespace, priority in claims:
            group.create_task(claim(namespace, priority))
            await asyncio.sleep(0)
    return order


def test_bindings_proceed_by_priority_and_then_by_arrival() -> None:
    order = asyncio.run(order_of([("a", 50), ("b", 100), ("c", 50), ("d", 100)]))

    assert order == [("b", 100), ("d", 100), ("a", 50), ("c", 50)]


def test_a_namespace_with_few_bindings_does_not_wait_for_one_with_many() -> None:
    async def play() -> list[str]:
        limiter, order = FairLimiter(2), list[str]()
        release = asyncio.Event()

        async def claim(namespace: str) -> None:
            async with limiter.taken(namespace, 0):
                order.append(namespace)
                await release.wait()

        async with asyncio.TaskGroup() as group:
            for namespace in ("many", "many", "many", "many", "few"):
                group.create_task(claim(namespace))
                await asyncio.sleep(0)
            release.set()
        return order

    # When the first two places come free, "many" has the other one still.
    assert asyncio.run(play()).index("few") <= 3


def test_a_cancelled_waiter_leaves_its_slot_to_others() -> None:
    async def play() -> bool:
        limiter = FairLimiter(1)
        async with limiter.taken("a", 0):
            waiting = asyncio.create_task(_take_once(limiter))
            await asyncio.sleep(0)
            waiting.cancel()
        granted = asyncio.create_task(_take_once(limiter))
        async with asyncio.timeout(60):
            return await granted

    assert asyncio.run(play())


async def _take_once(limiter: FairLimiter) -> bool:
    async with limiter.taken("b", 0):
        return True


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 3), st.booleans()),
        max_size=30,
    ),
)
def test_the_limit_holds_and_every_waiter_gets_a_slot_unless_cancelled(
    places: int, claims: list[tuple[str, int, int, bool]]
) -> None:
    async def play() -> None:
        limiter, held, served = FairLimiter(places), Counter[str](), list[int]()

        async def claim(number: int, namespace: str, priority: int, steps: int) -> None:
            async with limiter.taken(namespace, priority):
                held[namespace] += 1
                try:
                    assert held.total() <= places
                    for _ in range(steps):
                        await asyncio.sleep(0)
                finally:
                    held[namespace] -= 1
                served.append(number)

        tasks = [
            asyncio.create_task(claim(number, namespace, priority, steps))
            for number, (namespace, priority, steps, _) in enumerate(claims)
        ]
        await asyncio.sleep(0)
        for task, (*_, gives_up) in zip(tasks, claims, strict=True):
            if gives_up:
                task.cancel()
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks, return_exceptions=True)
        stayed = {number for number, (*_, gives_up) in enumerate(claims) if not gives_up}
        assert stayed <= set(served)
        assert held.total() == 0

    asyncio.run(play())
